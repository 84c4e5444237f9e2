// The kernels of the product as host functions, for the stand-in driver to run.

#include "tests/standin/control/stand_in_control.h"
#include "worker/gpu/kernels/testing/host_kernels.h"

namespace crossmesh {
namespace {

void Run(const StandInLaunch* launch) {
  static_cast<const HostKernel*>(launch->context)
      ->run(static_cast<int32_t>(launch->grid[0]), launch->arguments[0]);
}

}  // namespace
}  // namespace crossmesh

extern "C" void crossmeshStandInKernels(void (*add)(const StandInKernel* kernel)) {
  for (const crossmesh::HostKernel& kernel : crossmesh::HostKernels()) {
    const StandInKernel host_kernel = {.name = kernel.name.data(),
                                       .run = crossmesh::Run,
                                       .context = &kernel,
                                       .argument_count = 1,
                                       .argument_bytes = &kernel.argument_bytes};
    add(&host_kernel);
  }
}
