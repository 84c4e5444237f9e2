#include "common/mesh/gpu_costs.h"

#include "common/testing/status_matchers.h"

#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

TEST(GpuCostsTest, WhatIsAssumedIsSaidToBe) {
  const GpuCosts costs;
  EXPECT_OK(CheckCosts(costs));
  for (const GpuCostField& field : kGpuCostFields) {
    EXPECT_EQ((costs.*field.cost).source, "assumed") << field.name;
  }
  EXPECT_DOUBLE_EQ(costs.step_seconds(), 60e-6);
  EXPECT_DOUBLE_EQ(costs.message_seconds(), 1e-6);
}

TEST(GpuCostsTest, AStepIsTwoLaunchesAndAGroup) {
  GpuCosts costs;
  costs.launch_ns.value = 1'000;
  costs.group_ns.value = 70'000;
  EXPECT_DOUBLE_EQ(costs.step_seconds(), 72e-6);
}

TEST(GpuCostsTest, ACostOutOfRangeIsRefusedByName) {
  for (const GpuCostField& field : kGpuCostFields) {
    for (const int64_t value : {int64_t{0}, int64_t{-1}, field.most + 1}) {
      GpuCosts costs;
      (costs.*field.cost).value = value;
      EXPECT_THAT(
          CheckCosts(costs),
          StatusIs(kInvalid, HasSubstr(absl::StrCat("network: expected gpu_costs.", field.name,
                                                    " of 1 to ", field.most, ", found ", value))));
    }
    GpuCosts costs;
    (costs.*field.cost).value = field.most;
    EXPECT_OK(CheckCosts(costs)) << field.name;
  }
}

TEST(GpuCostsTest, ASourceIsOneLineOfText) {
  for (const std::string& source :
       {std::string("assumed"), std::string("measured on GPU-4bd8 at 2026-11-27T06:20:00Z"),
        std::string(200, 's'), std::string("gemessen für uns")}) {
    EXPECT_OK(CheckSource("x", source));
  }
  for (const std::string& source :
       {std::string(), std::string(201, 's'), std::string("two\nlines"), std::string("\xff")}) {
    EXPECT_THAT(CheckSource("network, gpu_costs.launch_ns", source),
                StatusIs(kInvalid, HasSubstr("network, gpu_costs.launch_ns: expected a source of "
                                             "1 to 200 printable bytes, found \"")));
  }
}

}  // namespace
}  // namespace crossmesh
