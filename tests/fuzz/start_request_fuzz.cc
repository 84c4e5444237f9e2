// The start of a task, as it comes from a controller: what is accepted is within its bounds.

#include "common/base/check.h"
#include "tests/fuzz/fuzz_input.h"
#include "worker/tasks/start_request.h"

#include <cstddef>
#include <cstdint>

#include <google/protobuf/stubs/logging.h>

namespace crossmesh {

void FuzzOne(const uint8_t* data, size_t size) {
  static const google::protobuf::LogSilencer quiet;
  v1::ExecuteRequest::Start start;
  if (!start.ParseFromArray(data, static_cast<int>(size))) return;
  const absl::StatusOr<StartRequest> request = FromProto(start);
  if (!request.ok()) return;
  CHECK(request->SameWork(*request));
  for (const absl::Duration duration : {request->deadline, request->stall_limit}) {
    CHECK(duration > absl::ZeroDuration() && duration <= StartRequest::kDeadlineMax);
  }
  CHECK_EQ(request->part.ToString(), start.part_digest());
  CHECK_EQ(static_cast<int>(request->peers.size()), start.peers_size());
  CHECK_EQ(static_cast<int>(request->communicators.size()), start.communicators_size());
  for (const StartRequest::Communicator& communicator : request->communicators) {
    CHECK_EQ(communicator.devices.size(), communicator.key.ranks.size());
  }
  for (const StartRequest::Peer& peer : request->peers) {
    CHECK_LE(std::ssize(peer.data_address), StartRequest::kDataAddressBytesMax);
  }
}

}  // namespace crossmesh
