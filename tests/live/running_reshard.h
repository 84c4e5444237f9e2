#pragma once

#include "crossmesh/v1/operation_service.pb.h"
#include "crossmesh/v1/reshard.pb.h"
#include "tests/live/following.h"

#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {

// An operation that a client executes. Thread-safe.
class RunningReshard : public Following<v1::Operation> {
 public:
  RunningReshard(const std::string& controller_address, const v1::ReshardSpec& spec);

  // Until its first message comes.
  absl::StatusOr<std::string> WaitForId();
  // All workers have accepted.
  absl::StatusOr<v1::Operation> WaitUntilRunning();
};

// Does it once, from start to end.
absl::StatusOr<v1::Operation> Execute(const std::string& controller_address,
                                      const v1::ReshardSpec& spec);

}  // namespace crossmesh
