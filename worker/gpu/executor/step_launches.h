#pragma once

#include "worker/gpu/compiler/compiled_part.h"
#include "worker/gpu/device/device_copy.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/executor/class_boxes.h"
#include "worker/gpu/kernels/kernel_arguments.h"

#include <cstdint>
#include <span>
#include <vector>

namespace crossmesh {

// Lists of segments, of all launches.
struct LaunchSegments {
  std::vector<PackSegment> packs;  // and unpacks
  std::vector<CopySegment> copies;
};

// What the steps of a compiled part launch, bound to memory: in each step one launch for each
// kernel that it needs, whatever its number of chunks, over a part of a list of segments. A step
// needs a kernel to pack, one to unpack, one to copy, and another one for each conversion. Copies
// of long rows are the driver's own. Immutable.
class StepLaunches {
 public:
  template <class Arguments>
  struct Launch {
    GpuKernel<Arguments> kernel;
    int64_t first_segment = 0;
    int32_t segments = 0;
    int64_t blocks = 0;  // of threads
  };

  // Appends what the launches are given to `segments`. Cost: linear in the chunks of steps, for
  // each conversion of the tensors.
  static StepLaunches Create(const Gpu& gpu, const CompiledPart& compiled, const ClassBoxes& boxes,
                             LaunchSegments& segments);

  // Of a step, by its index.
  std::span<const Launch<PackArguments>> packs(int32_t step) const {
    return In(packs_, steps_[step].packs);
  }
  std::span<const Launch<PackArguments>> unpacks(int32_t step) const {
    return In(unpacks_, steps_[step].unpacks);
  }
  std::span<const Launch<CopyArguments>> copies(int32_t step) const {
    return In(copies_, steps_[step].copies);
  }
  std::span<const DeviceCopy> driver_copies(int32_t step) const {
    return In(driver_copies_, steps_[step].driver_copies);
  }

 private:
  class Builder;
  using Range = CompiledPart::Range;
  struct Step {
    Range packs;
    Range unpacks;
    Range copies;
    Range driver_copies;
  };

  StepLaunches() = default;

  template <typename T>
  static std::span<const T> In(const std::vector<T>& list, const Range& range) {
    return std::span(list).subspan(range.begin, range.size());
  }

  std::vector<Step> steps_;
  std::vector<Launch<PackArguments>> packs_;
  std::vector<Launch<PackArguments>> unpacks_;
  std::vector<Launch<CopyArguments>> copies_;
  std::vector<DeviceCopy> driver_copies_;
};

}  // namespace crossmesh
