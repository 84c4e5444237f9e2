#include "common/rpc/not_leader.h"

#include "common/rpc/error_details.h"

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr const char* kReason = "NOT_LEADER";
constexpr const char* kLeader = "leader";

}  // namespace

absl::Status NotLeaderError(const std::optional<std::string>& leader) {
  absl::Status status = absl::UnavailableError(absl::StrCat(
      "controller: expected the one that leads, found one that stands by; ",
      leader.has_value() ? absl::StrCat("the leader is at ", *leader) : "no leader is known"));
  SetErrorReason(status, kReason);
  if (leader.has_value()) SetErrorDetail(status, kLeader, *leader);
  return status;
}

bool IsNotLeader(const absl::Status& status) {
  return absl::IsUnavailable(status) && ErrorReasonOf(status) == kReason;
}

std::optional<std::string> LeaderNamedBy(const absl::Status& status) {
  if (!IsNotLeader(status)) return std::nullopt;
  return ErrorDetailOf(status, kLeader);
}

}  // namespace crossmesh
