#include "worker/pipeline/program_start.h"

#include "common/base/status_macros.h"
#include "common/mesh/mesh.h"
#include "common/wire/call_token.h"
#include "common/wire/time_codec.h"

#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

constexpr size_t kNameBytesMax = 256;
constexpr size_t kDataAddressBytesMax = 4 << 10;
constexpr DurationRange kStallLimits = {absl::Milliseconds(1), absl::Hours(24)};

absl::Status CheckText(absl::string_view field, absl::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("start.", field, ": expected at most ", bytes_max,
                                                 " bytes, found ", text.size()));
}

}  // namespace

absl::StatusOr<ProgramStart> FromProto(const v1::RunProgramRequest::Start& start) {
  RETURN_IF_ERROR(CheckText("run_id", start.run_id(), kNameBytesMax));
  RETURN_IF_ERROR(CheckText("pipeline", start.pipeline(), kNameBytesMax));
  ASSIGN_OR_RETURN(const CallToken token, ParseToken(start.token()));
  ProgramStart decoded{.run_id = start.run_id(),
                       .operation = start.operation(),
                       .epoch = start.epoch(),
                       .token_high = token.high,
                       .token_low = token.low,
                       .pipeline = start.pipeline(),
                       .checksums = start.checksums(),
                       .rehearsal = start.rehearsal(),
                       .layers = start.layers()};
  ASSIGN_OR_RETURN(decoded.stall_limit,
                   DurationIn(start.stall_limit(), kStallLimits, "start.stall_limit"));
  if (start.has_complete_iteration()) decoded.complete_iteration = start.complete_iteration();
  for (const int32_t rank : start.lost_ranks()) {
    if (rank <= (decoded.lost_ranks.empty() ? -1 : decoded.lost_ranks.back())) {
      return absl::InvalidArgumentError(
          absl::StrCat("start.lost_ranks: expected ascending ranks from 0 on, found ",
                       absl::StrJoin(start.lost_ranks(), ", ")));
    }
    decoded.lost_ranks.push_back(rank);
  }
  for (const v1::RunProgramRequest::Peer& proto : start.peers()) {
    RETURN_IF_ERROR(CheckText("peers.worker", proto.worker(), kNameBytesMax));
    RETURN_IF_ERROR(CheckText("peers.data_address", proto.data_address(), kDataAddressBytesMax));
    ProgramStart::Peer peer{.worker = proto.worker(),
                            .data_address = proto.data_address(),
                            .incarnation = proto.incarnation()};
    ASSIGN_OR_RETURN(peer.devices, ParseDevices(proto.devices()));
    decoded.peers.push_back(std::move(peer));
  }
  return decoded;
}

}  // namespace crossmesh
