#pragma once

#include "common/mesh/device.h"
#include "crossmesh/v1/pipeline_execution_service.pb.h"
#include "planner/pipeline/op.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// What a controller says when it starts a program; as RunProgramRequest.Start, checked.
struct ProgramStart {
  struct Peer {
    std::string worker;
    std::string data_address;
    std::vector<DeviceId> devices;
    uint64_t incarnation = 0;  // of its process; 0: not said
  };

  std::string run_id;
  uint64_t operation = 0;
  uint64_t epoch = 0;
  uint64_t token_high = 0;
  uint64_t token_low = 0;
  std::string pipeline;
  std::vector<Peer> peers;
  bool checksums = false;
  bool rehearsal = false;
  bool layers = false;  // the program is a layer program
  absl::Duration stall_limit;
  std::optional<int64_t> complete_iteration;  // the last one everywhere
  std::vector<RankIndex> lost_ranks;          // ascending: a process of theirs was replaced
};

// InvalidArgument, naming the field, what was expected and what was found.
absl::StatusOr<ProgramStart> FromProto(const v1::RunProgramRequest::Start& start);

}  // namespace crossmesh
