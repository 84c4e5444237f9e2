// The fixture of kernel_conformance.h.

#pragma once

#include "common/testing/status_matchers.h"
#include "worker/gpu/kernels/testing/kernel_runner.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace crossmesh {

class KernelConformanceTest : public testing::TestWithParam<KernelsUnderTest> {
 protected:
  void SetUp() override {
    if (const std::string lack = GetParam().lack(); !lack.empty()) GTEST_SKIP() << lack;
    ASSERT_OK_AND_ASSIGN(runner_, GetParam().make_runner());
  }

  void Launch(const KernelLaunch& run) { ASSERT_OK(runner_->Run(run)); }

 private:
  std::unique_ptr<KernelRunner> runner_;
};

}  // namespace crossmesh
