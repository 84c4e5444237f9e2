// The kernels on a GPU, by the suite that their code passes on the host.

#include "tests/gpu/gpu_kernel_runner.h"
#include "tests/gpu/real_gpu.h"
#include "worker/gpu/kernels/testing/kernel_conformance.h"
#include "worker/gpu/kernels/testing/kernel_runner.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

INSTANTIATE_TEST_SUITE_P(Gpu, KernelConformanceTest,
                         testing::Values(KernelsUnderTest{"OnAGpu", MakeGpuKernelRunner,
                                                          [] { return WhatLacks({}); }}),
                         KernelsUnderTest::Name);

}  // namespace
}  // namespace crossmesh
