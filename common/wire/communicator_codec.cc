#include "common/wire/communicator_codec.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

absl::Status Malformed(absl::string_view field, absl::string_view expected,
                       absl::string_view found) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": expected ", expected, ", found ", found));
}

absl::Status CheckName(absl::string_view field, absl::string_view name) {
  if (!name.empty() && name.size() <= kGpuNameBytesMax) return absl::OkStatus();
  return Malformed(field, absl::StrCat("1 to ", kGpuNameBytesMax, " bytes"),
                   absl::StrCat(name.size()));
}

absl::Status CheckNumber(absl::string_view field, int64_t number) {
  if (number >= 0) return absl::OkStatus();
  return Malformed(field, "at least 0", absl::StrCat(number));
}

absl::Status CheckCount(absl::string_view field, int count, int count_max) {
  if (count <= count_max) return absl::OkStatus();
  return Malformed(field, absl::StrCat("at most ", count_max), absl::StrCat(count));
}

absl::Status CheckRanksDiffer(std::vector<RankName> ranks) {
  std::ranges::sort(ranks);
  const auto twice = std::ranges::adjacent_find(ranks);
  if (twice == ranks.end()) return absl::OkStatus();
  return Malformed("communicator.ranks", "each rank once",
                   absl::StrCat(twice->ToString(), " twice"));
}

}  // namespace

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
  if (proto.ranks().empty() || proto.ranks_size() > kCommunicatorRanksMax) {
    return Malformed("communicator.ranks", absl::StrCat("1 to ", kCommunicatorRanksMax),
                     absl::StrCat(proto.ranks_size()));
  }
  RETURN_IF_ERROR(CheckName("communicator.purpose", proto.purpose()));
  CommunicatorKey key = {.ranks = {}, .purpose = proto.purpose(), .epoch = proto.epoch()};
  for (const v1::CommunicatorKey::Rank& rank : proto.ranks()) {
    ASSIGN_OR_RETURN(key.ranks.emplace_back(), FromProto(rank));
  }
  RETURN_IF_ERROR(CheckRanksDiffer(key.ranks));
  return key;
}

v1::PreflightReport ToProto(const PreflightReport& report) {
  v1::PreflightReport proto;
  *proto.mutable_rank() = ToProto(report.rank);
  proto.set_nccl_version(report.nccl_version);
  proto.set_nccl_library(report.nccl_library);
  proto.set_driver_version(report.driver_version);
  for (const auto& [name, value] : report.environment) {
    v1::PreflightReport::Variable& variable = *proto.add_environment();
    variable.set_name(name);
    variable.set_value(value);
  }
  proto.set_free_bytes(report.free_bytes);
  for (const auto& [ticket, bytes] : report.communicators) {
    v1::PreflightReport::Held& held = *proto.add_communicators();
    held.set_ticket(ticket);
    held.set_size_bytes(bytes);
  }
  proto.set_m2n(report.m2n);
  return proto;
}

absl::StatusOr<PreflightReport> FromProto(const v1::PreflightReport& proto) {
  RETURN_IF_ERROR(
      CheckCount("preflight.environment", proto.environment_size(), kPreflightVariablesMax));
  RETURN_IF_ERROR(CheckCount("preflight.communicators", proto.communicators_size(),
                             kPreflightCommunicatorsMax));
  RETURN_IF_ERROR(CheckNumber("preflight.nccl_version", proto.nccl_version()));
  RETURN_IF_ERROR(CheckNumber("preflight.driver_version", proto.driver_version()));
  RETURN_IF_ERROR(CheckNumber("preflight.free_bytes", proto.free_bytes()));
  PreflightReport report = {.nccl_version = proto.nccl_version(),
                            .nccl_library = proto.nccl_library(),
                            .driver_version = proto.driver_version(),
                            .free_bytes = proto.free_bytes(),
                            .m2n = proto.m2n()};
  ASSIGN_OR_RETURN(report.rank, FromProto(proto.rank()));
  for (const v1::PreflightReport::Variable& variable : proto.environment()) {
    if (!report.environment.emplace(variable.name(), variable.value()).second) {
      return Malformed("preflight.environment", "each variable once",
                       absl::StrCat("\"", variable.name(), "\" twice"));
    }
  }
  for (const v1::PreflightReport::Held& held : proto.communicators()) {
    RETURN_IF_ERROR(CheckNumber("preflight.communicators.size_bytes", held.size_bytes()));
    if (!report.communicators.emplace(held.ticket(), held.size_bytes()).second) {
      return Malformed("preflight.communicators", "each ticket once",
                       absl::StrCat(held.ticket(), " twice"));
    }
  }
  return report;
}

}  // namespace crossmesh
