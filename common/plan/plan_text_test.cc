#include "common/base/check.h"
#include "common/plan/plan.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// A tensor from a.0 to as many devices, of which each needs another byte.
Plan::Spec ToDevices(int count) {
  auto tensors = std::make_shared<const TensorTable>(TableOf({TensorOf(
      absl::StrCat("[", count, "]: x=1 on a.0 [-] -> y=", count, " on b.0-", count - 1, " [y]"),
      DataType::kU8)}));
  auto slicing = Slicing::Create(*tensors);
  CHECK_OK(slicing);
  return {.tensors = std::move(tensors),
          .slicing = std::make_shared<const Slicing>(*std::move(slicing))};
}

std::string TextOf(Plan::Spec spec, int64_t relays_max = 1000) {
  const absl::StatusOr<Plan> plan = Plan::Create(std::move(spec));
  CHECK_OK(plan);
  return ToText(*plan, relays_max);
}

int64_t LinesThatBeginWith(absl::string_view begin, const std::string& text) {
  int64_t count = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n'))
    count += absl::StartsWith(line, begin);
  return count;
}

TEST(PlanTextTest, ListsAThousandClasses) {
  EXPECT_THAT(TextOf(ToDevices(1000)),
              HasSubstr("\n  class 999: 1 bytes, held by a.0, needed by b.999\nrelays 0 with"));
  EXPECT_THAT(
      TextOf(ToDevices(1001)),
      HasSubstr("\n  class 999: 1 bytes, held by a.0, needed by b.999\n  and 1 more\nrelays 0"));
}

TEST(PlanTextTest, ListsAsManyRelaysAndCopiesAsAreAskedFor) {
  Plan::Spec spec = ToDevices(2);
  for (ClassIndex c = 0; c < 2; ++c) {
    spec.relays.push_back(
        {.slice_class = c, .root = 0, .begin = 0, .end = 1, .first_hop = c, .hop_count = 1});
    spec.hops.push_back({.from = 0, .to = c + 1});
    spec.copies.push_back({.slice_class = c, .device = 0});
  }
  EXPECT_THAT(TextOf(spec, 2), HasSubstr(R"(
relays 2 with 2 hops
  relay 0: class 0 [0, 1) from a.0: a.0>b.0#0
  relay 1: class 1 [0, 1) from a.0: a.0>b.1#0
copies 2
  class 0 on a.0
  class 1 on a.0
figures
)"));
  EXPECT_THAT(TextOf(spec, 1), HasSubstr(R"(
relays 2 with 2 hops
  relay 0: class 0 [0, 1) from a.0: a.0>b.0#0
  and 1 more
copies 2
  class 0 on a.0
  and 1 more
figures
)"));
}

TEST(PlanTextTest, ListsAThousandBroadcastGroups) {
  Plan::Spec spec = ToDevices(2);
  for (int i = 0; i < 1000; ++i) spec.broadcast_groups.Add(std::vector<DeviceRank>{1, 2});
  const std::string all = TextOf(spec);
  EXPECT_THAT(all, HasSubstr("copies 0\nbroadcast groups 1000\n  b.0-1\n  b.0-1\n"));
  EXPECT_THAT(all, HasSubstr("  b.0-1\nfigures\n"));
  EXPECT_EQ(LinesThatBeginWith("  b.0-1", all), 1000);
  spec.broadcast_groups.Add(std::vector<DeviceRank>{1, 2});
  const std::string most = TextOf(spec);
  EXPECT_THAT(most, HasSubstr("  b.0-1\n  and 1 more\nfigures\n"));
  EXPECT_EQ(LinesThatBeginWith("  b.0-1", most), 1000);
}

TEST(PlanTextTest, SaysOfAThousandGroupsOfGpusWhatTheyTake) {
  Plan::Spec spec = ToDevices(2);
  spec.figures.broadcasts.assign(1001,
                                 {.devices = "b.0-1", .relay_seconds = 2, .broadcast_seconds = 2});
  spec.figures.broadcasts[0] = {.devices = "a.0", .relay_seconds = 2, .broadcast_seconds = 1};
  const std::string text = TextOf(spec);
  EXPECT_THAT(text, HasSubstr("  GPUs a.0: relays 2 s, broadcasts 1, chosen\n"
                              "  GPUs b.0-1: relays 2 s, broadcasts 2\n"));
  EXPECT_EQ(LinesThatBeginWith("  GPUs", text), 1000);
}

TEST(PlanTextTest, SaysWhatM2nWouldTakeOrWhyItCannot) {
  Plan::Spec spec = ToDevices(2);
  EXPECT_THAT(TextOf(spec), Not(HasSubstr("M2N")));
  spec.figures.m2n = {.seconds = 0.25};
  EXPECT_THAT(TextOf(spec), HasSubstr("\n  NCCL M2N 0.25 s\n"));
  spec.figures.m2n = {.refusal = "tensor w: two cuts"};
  EXPECT_THAT(TextOf(spec), HasSubstr("\n  NCCL M2N cannot: tensor w: two cuts\n"));
}

TEST(PlanTextTest, SaysWhatTakesLessThanASecond) {
  Plan::Spec spec = ToDevices(2);
  spec.figures.bound = {.seconds = 0.5, .together_seconds = 0.5};
  spec.least_run_ns = 1;
  const std::string text = TextOf(spec);
  EXPECT_THAT(text, HasSubstr("rack uplink 0, together 0.5)\n"));
  EXPECT_THAT(text, HasSubstr("\nno faster than 1e-09 s\n"));
}

}  // namespace
}  // namespace crossmesh
