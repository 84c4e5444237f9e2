#include "worker/gpu/executor/reduction_launches.h"

#include "common/base/status_macros.h"
#include "worker/gpu/kernels/kernel.h"

#include <map>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

static_assert(static_cast<int>(KernelReduction::kSum) == static_cast<int>(ReductionKind::kSum));
static_assert(static_cast<int>(KernelReduction::kMin) == static_cast<int>(ReductionKind::kMin));
static_assert(static_cast<int>(KernelReduction::kMax) == static_cast<int>(ReductionKind::kMax));

// Kernels read and write elements as they are.
absl::Status CheckPlace(const LegReduction& reduction, const CompiledPart& compiled) {
  const uint64_t to = reduction.segment.to_address;
  if (to != 0 && to % ItemBytes(reduction.type) == 0) return absl::OkStatus();
  const TensorTable& tensors = compiled.part().part().tensors();
  return absl::InvalidArgumentError(
      absl::StrCat("what is reduced at device ", ToString(tensors.devices()[compiled.device()]),
                   ": expected memory at a multiple of the ", ItemBytes(reduction.type),
                   " bytes of an element, found address ", to));
}

}  // namespace

absl::StatusOr<std::vector<ReductionLaunch>> ReductionLaunchesOf(
    const Gpu& gpu, const GpuLeg& leg, std::vector<ReductionSegment>& segments) {
  std::map<DataType, std::vector<ReductionSegment>> by_type;
  for (const LegReduction& reduction : leg.reducing) {
    RETURN_IF_ERROR(CheckPlace(reduction, *leg.compiled));
    by_type[reduction.type].push_back(reduction.segment);
  }
  std::vector<ReductionLaunch> launches;
  for (auto& [type, of_type] : by_type) {
    ReductionLaunch launch{.kernel = gpu.KernelNamed<ReduceArguments>(ReducingKernelName(type)),
                           .first_segment = std::ssize(segments),
                           .segments = static_cast<int32_t>(of_type.size()),
                           .kind = static_cast<KernelReduction>(leg.reduction.kind),
                           .divisor = leg.reduction.divisor};
    for (ReductionSegment& segment : of_type) {
      segment.first_block = static_cast<int32_t>(launch.blocks);
      launch.blocks += (segment.bytes + kReducedBytesOfBlock - 1) / kReducedBytesOfBlock;
      segments.push_back(segment);
    }
    launches.push_back(launch);
  }
  return launches;
}

}  // namespace crossmesh
