#include "tests/gpu/gpu_kernel_runner.h"

#include "common/base/status_macros.h"
#include "tests/gpu/gpu_mirror.h"
#include "tests/gpu/real_gpu.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/gpu_stream.h"

#include <algorithm>
#include <list>
#include <span>
#include <string>
#include <vector>

namespace crossmesh {
namespace {

// What a kernel is given on a GPU in place of what the run has. Keeps the lists.
class ArgumentsOnGpu {
 public:
  explicit ArgumentsOnGpu(GpuMirror& mirror) : mirror_(mirror) {}

  absl::StatusOr<PackArguments> Of(PackArguments arguments) {
    const auto segments = std::span(arguments.segments, arguments.segment_count);
    ASSIGN_OR_RETURN(arguments.boxes,
                     Moved(arguments.boxes, LastOf(segments, &PackSegment::box_end)));
    ASSIGN_OR_RETURN(arguments.segments, Moved(arguments.segments, arguments.segment_count));
    arguments.packed = mirror_.OnGpu(arguments.packed);
    arguments.leaf_hashes = mirror_.OnGpu(arguments.leaf_hashes);
    arguments.root_hashes = mirror_.OnGpu(arguments.root_hashes);
    arguments.root_hashes_to = mirror_.OnGpu(arguments.root_hashes_to);
    return arguments;
  }

  absl::StatusOr<CopyArguments> Of(CopyArguments arguments) {
    const auto segments = std::span(arguments.segments, arguments.segment_count);
    ASSIGN_OR_RETURN(arguments.sources,
                     Moved(arguments.sources, LastOf(segments, &CopySegment::source_end)));
    ASSIGN_OR_RETURN(
        arguments.destinations,
        Moved(arguments.destinations, LastOf(segments, &CopySegment::destination_end)));
    ASSIGN_OR_RETURN(arguments.segments, Moved(arguments.segments, arguments.segment_count));
    arguments.source_hashes = mirror_.OnGpu(arguments.source_hashes);
    arguments.destination_hashes = mirror_.OnGpu(arguments.destination_hashes);
    return arguments;
  }

  absl::StatusOr<ReduceArguments> Of(ReduceArguments arguments) {
    ASSIGN_OR_RETURN(arguments.segments, Moved(arguments.segments, arguments.segment_count));
    return arguments;
  }

  absl::StatusOr<ScaleArguments> Of(ScaleArguments arguments) {
    ASSIGN_OR_RETURN(arguments.matrices, Moved(arguments.matrices, arguments.matrix_count));
    return arguments;
  }

 private:
  // How many boxes segments have.
  template <class Segment>
  static int32_t LastOf(std::span<const Segment> segments, int32_t Segment::* end) {
    int32_t last = 0;
    for (const Segment& segment : segments) last = std::max(last, segment.*end);
    return last;
  }

  // Segments have no addresses.
  void Move(PackSegment& /*segment*/) const {}
  void Move(CopySegment& /*segment*/) const {}
  void Move(KernelBox& box) const {
    box.address = mirror_.OnGpu(box.address);
    box.factors_address = mirror_.OnGpu(box.factors_address);
  }
  void Move(ReductionSegment& segment) const {
    segment.address = mirror_.OnGpu(segment.address);
    segment.to_address = mirror_.OnGpu(segment.to_address);
  }
  void Move(ScaledMatrix& matrix) const {
    matrix.address = mirror_.OnGpu(matrix.address);
    matrix.scales_address = mirror_.OnGpu(matrix.scales_address);
    matrix.factors_address = mirror_.OnGpu(matrix.factors_address);
  }

  template <class Item>
  absl::StatusOr<const Item*> Moved(const Item* list, int32_t count) {
    std::vector<Item> moved(list, list + count);
    for (Item& item : moved) Move(item);
    const auto bytes = std::as_bytes(std::span(moved));
    std::vector<std::byte>& kept = lists_.emplace_back(bytes.begin(), bytes.end());
    RETURN_IF_ERROR(mirror_.Add(kept));
    return mirror_.OnGpu(reinterpret_cast<const Item*>(kept.data()));
  }

  GpuMirror& mirror_;
  std::list<std::vector<std::byte>> lists_;
};

class GpuKernelRunner final : public KernelRunner {
 public:
  static absl::StatusOr<std::unique_ptr<KernelRunner>> Create() {
    auto runner = std::make_unique<GpuKernelRunner>();
    ASSIGN_OR_RETURN(runner->driver_, LoadDriver());
    ASSIGN_OR_RETURN(const std::vector<std::string> uuids, Gpu::Uuids(*runner->driver_));
    ASSIGN_OR_RETURN(runner->gpu_, Gpu::Create(*runner->driver_, uuids.at(0)));
    ASSIGN_OR_RETURN(runner->stream_, GpuStream::Create(*runner->gpu_));
    ASSIGN_OR_RETURN(runner->mirror_, GpuMirror::Create(*runner->gpu_));
    return runner;
  }

  absl::Status Run(const KernelLaunch& run) override {
    mirror_->Clear();
    for (const std::span<std::byte> region : run.memory) RETURN_IF_ERROR(mirror_->Add(region));
    return std::visit([&](const auto& arguments) { return Launch(run, arguments); }, run.arguments);
  }

 private:
  template <class Arguments>
  absl::Status Launch(const KernelLaunch& run, const Arguments& given) {
    ArgumentsOnGpu arguments_on_gpu(*mirror_);
    ASSIGN_OR_RETURN(const Arguments arguments, arguments_on_gpu.Of(given));
    RETURN_IF_ERROR(mirror_->CopyToGpu());
    const GpuKernel<Arguments> kernel = gpu_->KernelNamed<Arguments>(run.kernel);
    RETURN_IF_ERROR(gpu_->Launch(kernel, run.blocks, arguments, *stream_));
    RETURN_IF_ERROR(gpu_->Check(driver_->cuStreamSynchronize(stream_->handle()), run.kernel));
    return mirror_->CopyFromGpu();
  }

  std::unique_ptr<const DriverApi> driver_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<GpuStream> stream_;
  std::unique_ptr<GpuMirror> mirror_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KernelRunner>> MakeGpuKernelRunner() {
  return GpuKernelRunner::Create();
}

}  // namespace crossmesh
