#pragma once

#include "common/base/digest.h"
#include "crossmesh/v1/execution_service.pb.h"
#include "worker/executor/task.h"
#include "worker/wire/caller.h"

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// Hears what a task says.
using TaskCaller = Caller<v1::ExecuteResponse>;

// What a controller asks for when it starts a task; as ExecuteRequest.Start, checked.
struct StartRequest {
  using Communicator = TaskSpec::Communicator;  // its devices are not checked yet

  struct Peer {
    std::string worker;
    std::string data_address;
    std::vector<DeviceRank> devices;  // in the part's tensors; not checked yet
  };

  static constexpr absl::Duration kDeadlineMax = absl::Hours(24);
  static constexpr int kDataAddressBytesMax = 4 << 10;

  TaskKey key;
  std::string operation_id;
  uint64_t token_high = 0;
  uint64_t token_low = 0;
  Digest part;
  std::string source_storage;
  std::string destination_storage;
  bool create_destination = false;
  bool checksums = false;
  std::vector<Peer> peers;
  std::vector<Communicator> communicators;
  absl::Duration deadline;
  absl::Duration stall_limit;

  std::string Name() const;  // "operation op-1, attempt 2"
  // Is it the same work? Deadlines and addresses may differ when a start is repeated.
  bool SameWork(const StartRequest& other) const;
};

// The task of a former controller that one of a higher epoch takes over; as ExecuteRequest.Adopt,
// checked.
struct AdoptRequest {
  TaskKey key;
  Digest part;
  uint64_t by_epoch = 0;
  std::string operation_id;
};

// InvalidArgument, naming the field, what was expected and what was found.
absl::StatusOr<StartRequest> FromProto(const v1::ExecuteRequest::Start& start);
absl::StatusOr<AdoptRequest> FromProto(const v1::ExecuteRequest::Adopt& adopt);

}  // namespace crossmesh
