#pragma once

#include "common/base/digest.h"
#include "common/plan/worker_part.h"

#include <cstddef>
#include <list>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// The parts of workers that ran last, cut by device. Thread-compatible.
class DeviceParts {
 public:
  using Parts = std::vector<std::shared_ptr<const WorkerPart>>;

  static constexpr size_t kPartsMax = 64;

  // One part of one device for each of the part's devices, in their order. Internal: CutPart
  // refuses it. Cost: linear in the part times its devices, when it did not run lately.
  absl::StatusOr<std::shared_ptr<const Parts>> Of(const WorkerPart& part);

 private:
  struct Entry {
    Digest digest;
    std::shared_ptr<const Parts> parts;
  };

  std::list<Entry> entries_;  // used last: in front
};

}  // namespace crossmesh
