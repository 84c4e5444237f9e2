// The kernels' own code, run on the host.

#include "common/plan/plan.h"
#include "worker/gpu/kernels/leaf_hash.h"
#include "worker/gpu/kernels/testing/kernel_conformance.h"
#include "worker/gpu/kernels/testing/kernel_runner.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

static_assert(kLeafBytes == Plan::kLeafBytes);

INSTANTIATE_TEST_SUITE_P(Host, KernelConformanceTest,
                         testing::Values(KernelsUnderTest{"OnTheHost", MakeHostKernelRunner}),
                         KernelsUnderTest::Name);

}  // namespace
}  // namespace crossmesh
