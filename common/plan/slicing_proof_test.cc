#include "common/plan/slicing_proof.h"

#include "common/base/check.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Slicing SlicingOf(const TensorTable& tensors) {
  absl::StatusOr<Slicing> slicing = Slicing::Create(tensors);
  CHECK_OK(slicing);
  return *std::move(slicing);
}

// That the slicing of a table is not one of another table.
void ExpectInternal(const TensorTable& tensors, const TensorTable& others,
                    const ::testing::Matcher<std::string>& message) {
  EXPECT_OK(ProveSlicing(others, SlicingOf(others)).status());
  EXPECT_THAT(ProveSlicing(tensors, SlicingOf(others)).status(),
              StatusIs(absl::StatusCode::kInternal, message));
}

TensorTable HalvesToAll() {
  return TableOf({TensorOf("[8, 4]: x=2 on a.0-1 [x, -] -> x=2 on b.0-1 [-, -]")});
}

TEST(SlicingProofTest, FindsASlicingOfOtherLayouts) {
  for (const char* tensor : {"[8, 4]: x=2 on a.0-1 [x, -] -> x=2 on b.0-1 [x, -]",
                             "[8, 4]: x=2 on a.0-1 [x, -] -> x=2 on b.0-1 [-, x]"}) {
    const TensorTable other = TableOf({TensorOf(tensor)});
    ExpectInternal(HalvesToAll(), other, HasSubstr("of its destination tile"));
    ExpectInternal(other, HalvesToAll(), HasSubstr("inside the tile of its receiver b."));
  }
  const TensorTable swapped =
      TableOf({TensorOf("[8, 4]: x=2 on a.1,a.0 [x, -] -> x=2 on b.0-1 [-, -]")});
  ExpectInternal(HalvesToAll(), swapped, HasSubstr("inside the tile of its holder"));
}

TEST(SlicingProofTest, FindsADeviceThatHoldsNothing) {
  const TensorTable both = TableOf({TensorOf("[8, 4]: x=2 on a.0-1 [-, -] -> x=1 on b.0 [-, -]")});
  const TensorTable one =
      TableOf({TensorOf("[8, 4]: x=2 on a.0-1 {[0:8, 0:4]; } -> x=1 on b.0 [-, -]")});
  ExpectInternal(one, both, HasSubstr("inside the tile of its holder a.1"));
}

TEST(SlicingProofTest, FindsASlicingOfOtherTensors) {
  const TensorTable longer =
      TableOf({TensorOf("[8, 6]: x=2 on a.0-1 [x, -] -> x=2 on b.0-1 [-, -]")});
  ExpectInternal(HalvesToAll(), longer, HasSubstr("cuts ascending from 0 to 4 in dimension 1"));
  TensorTable::Spec twice = HalvesToAll().spec();
  twice.group_of_tensor = {0, 0};
  ASSERT_OK_AND_ASSIGN(const TensorTable tensors, TensorTable::Create(std::move(twice)));
  ExpectInternal(tensors, HalvesToAll(), AllOf(HasSubstr("class 0"), HasSubstr("128 bytes")));
}

TEST(SlicingProofTest, FindsASlicingOfOtherConversions) {
  const TensorText as_half =
      TensorOf("[4]: x=1 on a.0 [-] -> x=1 on b.0 [-]", DataType::kF32, DataType::kF16);
  TensorText as_brain = as_half;
  as_brain.sent_as = DataType::kBF16;
  // As many bytes of the same devices: a class of both tensors, where there are two.
  ExpectInternal(
      TableOf({as_half, as_brain}), TableOf({as_half, as_half}),
      AllOf(HasSubstr("group 1"), HasSubstr("expected conversion 1 of class 0, found 0")));
}

}  // namespace
}  // namespace crossmesh
