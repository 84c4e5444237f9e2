// What the kernels do wherever they run: the same as their CPU reference implementations, bit for
// bit, and nothing else. Where they can be run, a test says
//
//   INSTANTIATE_TEST_SUITE_P(Host, KernelConformanceTest,
//                            testing::Values(KernelsUnderTest{"OnTheHost", ...}),
//                            KernelsUnderTest::Name);

#pragma once

#include "worker/gpu/kernels/testing/copy_kernel_conformance.h"
#include "worker/gpu/kernels/testing/kernel_conformance_fixture.h"
#include "worker/gpu/kernels/testing/pack_kernel_conformance.h"
#include "worker/gpu/kernels/testing/reduce_kernel_conformance.h"
#include "worker/gpu/kernels/testing/scale_kernel_conformance.h"
#include "worker/gpu/kernels/testing/segments_kernel_conformance.h"
#include "worker/gpu/kernels/testing/unpack_kernel_conformance.h"
