// The kernels' own code, run on the host.

#include "worker/gpu/kernels/testing/kernel_conformance.h"
#include "worker/gpu/kernels/testing/kernel_runner.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

INSTANTIATE_TEST_SUITE_P(Host, KernelConformanceTest,
                         testing::Values(KernelsUnderTest{"OnTheHost", MakeHostKernelRunner}),
                         KernelsUnderTest::Name);

}  // namespace
}  // namespace crossmesh
