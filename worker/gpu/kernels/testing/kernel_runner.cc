#include "worker/gpu/kernels/testing/kernel_runner.h"

#include "worker/gpu/kernels/testing/host_kernels.h"

namespace crossmesh {
namespace {

class HostKernelRunner final : public KernelRunner {
 public:
  absl::Status Run(const KernelLaunch& run) override {
    const HostKernel& kernel = HostKernelOf(run.kernel);
    std::visit(
        [&](const auto& arguments) { kernel.run(static_cast<int32_t>(run.blocks), &arguments); },
        run.arguments);
    return absl::OkStatus();
  }
};

}  // namespace

std::unique_ptr<KernelRunner> MakeHostKernelRunner() {
  return std::make_unique<HostKernelRunner>();
}

}  // namespace crossmesh
