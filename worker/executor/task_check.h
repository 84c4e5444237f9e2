#pragma once

#include <cstdint>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

struct TaskSpec;

// InvalidArgument as Executor::Start says, for all that needs no transport.
// `staged_chunk_bytes_max`: what a chunk may be at most.
absl::Status CheckTask(const TaskSpec& spec, int64_t staged_chunk_bytes_max);

// Which of TaskSpec::peers the task exchanges messages with.
std::vector<bool> NeededPeers(const TaskSpec& spec);

}  // namespace crossmesh
