#include "worker/gpu/protocol/message_fields.h"

#include "common/base/status_macros.h"

#include <optional>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int kRanksMax = 4096;
constexpr size_t kNameBytesMax = 128;

absl::Status CheckName(absl::string_view field, absl::string_view name) {
  if (!name.empty() && name.size() <= kNameBytesMax) return absl::OkStatus();
  return Malformed(field, absl::StrCat("1 to ", kNameBytesMax, " bytes"),
                   absl::StrCat(name.size()));
}

}  // namespace

absl::Status Malformed(absl::string_view field, absl::string_view expected,
                       absl::string_view found) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " of a GPU message: expected ", expected, ", found ", found));
}

absl::Status CheckNumber(absl::string_view field, int64_t number, int64_t least) {
  if (number >= least) return absl::OkStatus();
  return Malformed(field, absl::StrCat("at least ", least), absl::StrCat(number));
}

v1::GpuStatus ToProto(const absl::Status& status) {
  v1::GpuStatus proto;
  proto.set_code(static_cast<int>(status.code()));
  proto.set_message(std::string(status.message()));
  return proto;
}

absl::Status FromProto(const v1::GpuStatus& proto) {
  const int code = proto.code();
  const bool is_known = code >= 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return absl::Status(is_known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      proto.message());
}

v1::CommunicatorKey::Rank ToProto(const RankName& rank) {
  v1::CommunicatorKey::Rank proto;
  proto.set_gpu(rank.gpu);
  proto.set_incarnation(rank.incarnation);
  return proto;
}

absl::StatusOr<RankName> FromProto(const v1::CommunicatorKey::Rank& proto) {
  RETURN_IF_ERROR(CheckName("rank.gpu", proto.gpu()));
  return RankName{.gpu = proto.gpu(), .incarnation = proto.incarnation()};
}

v1::CommunicatorKey ToProto(const CommunicatorKey& key) {
  v1::CommunicatorKey proto;
  for (const RankName& rank : key.ranks) *proto.add_ranks() = ToProto(rank);
  proto.set_purpose(key.purpose);
  proto.set_epoch(key.epoch);
  return proto;
}

absl::StatusOr<CommunicatorKey> FromProto(const v1::CommunicatorKey& proto) {
  if (proto.ranks().empty() || proto.ranks_size() > kRanksMax) {
    return Malformed("communicator.ranks", absl::StrCat("1 to ", kRanksMax),
                     absl::StrCat(proto.ranks_size()));
  }
  RETURN_IF_ERROR(CheckName("communicator.purpose", proto.purpose()));
  CommunicatorKey key = {.ranks = {}, .purpose = proto.purpose(), .epoch = proto.epoch()};
  for (const v1::CommunicatorKey::Rank& rank : proto.ranks()) {
    ASSIGN_OR_RETURN(key.ranks.emplace_back(), FromProto(rank));
  }
  return key;
}

v1::GpuTaskKey ToProto(const TaskKey& key) {
  v1::GpuTaskKey proto;
  proto.set_operation(key.operation);
  proto.set_epoch(key.epoch);
  proto.set_attempt(key.attempt);
  proto.set_instance(key.instance);
  return proto;
}

TaskKey FromProto(const v1::GpuTaskKey& proto) {
  return {.operation = proto.operation(),
          .epoch = proto.epoch(),
          .attempt = proto.attempt(),
          .instance = proto.instance()};
}

absl::StatusOr<Digest> ParseDigest(absl::string_view field, const std::string& hex) {
  const std::optional<Digest> digest = Digest::Parse(hex);
  if (digest.has_value()) return *digest;
  return Malformed(field, "32 hexadecimal digits",
                   absl::StrCat(hex.size(), " bytes of something else"));
}

}  // namespace crossmesh
