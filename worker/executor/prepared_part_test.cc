#include "worker/executor/prepared_part.h"

#include "common/base/check.h"
#include "common/plan/testing/chain_plan.h"
#include "common/testing/status_matchers.h"

#include <cstdint>
#include <memory>
#include <utility>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// A tensor of so many bytes from a.0 by b.0 to b.1: the part of the worker of b.
std::shared_ptr<const WorkerPart> PartOf(int64_t bytes) {
  const Plan plan =
      ChainPlan(TensorOf(absl::StrCat("[", bytes / 4, "]: x=1 on a.0 [-] -> x=2 on b.0-1 [-]")),
                {"a.0 > b.0 > b.1"}, {.chunk_bytes = Plan::kLeafBytes});
  auto parts = CutParts(plan, {{{"a", 0}}, {{"b", 0}, {"b", 1}}});
  CHECK_OK(parts);
  return std::make_shared<const WorkerPart>(std::move((*parts)[1]));
}

TEST(PreparedPartTest, TheBytesOfAPartAreKnownBeforeTheyAreSpent) {
  const auto part = PartOf(int64_t{1} << 30);
  ASSERT_OK_AND_ASSIGN(const auto prepared, PreparedPart::Create(part));
  EXPECT_EQ(prepared->chunks(), 2 * (1 << 14));
  const int64_t spent = prepared->chunks() / 2 * 16 + prepared->leaves() * 8;
  EXPECT_GT(PreparedPart::BytesFor(*part), spent);
  EXPECT_LT(PreparedPart::BytesFor(*part), 4 * spent);
  // Each run has hashes of its own.
  EXPECT_GT(PreparedPart::BytesFor(*part, 9),
            PreparedPart::BytesFor(*part) + 8 * prepared->leaves() * 8);
  // Without preparing it.
  EXPECT_GT(PreparedPart::BytesFor(*PartOf(int64_t{1} << 42)), int64_t{1} << 31);
}

}  // namespace
}  // namespace crossmesh
