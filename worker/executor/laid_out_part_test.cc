#include "worker/executor/laid_out_part.h"

#include "common/base/byte_count.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/testing/bare_task.h"
#include "worker/memory/memory_budget.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;

// A quarter each from a.0 to b.0, from a.2 to b.1 and from a.3 to b.2; a.1 needs what it has.
std::vector<WorkerPart> Parts() {
  const Plan plan =
      PlanOfRelays(TensorOf("[400]: x=4 on a.0-3 [x] -> x=4 on b.0,a.1,b.1,b.2 [x]"),
                   {{"a.0 > b.0"},
                    {.chain = "a.2 > b.1", .slice_class = 2},
                    {.chain = "a.3 > b.2", .slice_class = 3}},
                   {.copies = {{.slice_class = 1, .device = 1}}, .chunk_bytes = Plan::kLeafBytes});
  auto parts =
      CutParts(plan, {{{"a", 0}, {"a", 1}}, {{"a", 2}, {"a", 3}, {"b", 0}}, {{"b", 1}, {"b", 2}}});
  EXPECT_OK(parts);
  return *std::move(parts);
}

std::shared_ptr<const WorkerPart> PartOf(int worker) {
  return std::make_shared<const WorkerPart>(std::move(Parts()[worker]));
}

TEST(LaidOutPartTest, LaysOutWhatIsReadAndWhatIsWritten) {
  ASSERT_OK_AND_ASSIGN(const auto first, LaidOutPart::Create(PartOf(0)));
  EXPECT_THAT(first->sources, ElementsAre(Key(0), Key(1)));
  EXPECT_THAT(first->destinations, ElementsAre(Key(1)));
  ASSERT_OK_AND_ASSIGN(const auto second, LaidOutPart::Create(PartOf(1)));
  EXPECT_THAT(second->sources, ElementsAre(Key(2), Key(3)));
  EXPECT_THAT(second->destinations, ElementsAre(Key(4)));
  ASSERT_OK_AND_ASSIGN(const auto third, LaidOutPart::Create(PartOf(2)));
  EXPECT_TRUE(third->sources.empty());
  EXPECT_THAT(third->destinations, ElementsAre(Key(5), Key(6)));
}

TEST(LaidOutPartTest, APartTakesOfTheMemoryForAsLongAsItLives) {
  const int64_t bytes = PreparedPart::BytesFor(*PartOf(0), 3);
  MemoryBudget memory{ByteCount(bytes)};
  {
    ASSERT_OK_AND_ASSIGN(const auto part,
                         LaidOutPart::Admit(PartOf(0), {.name = "x", .memory = memory, .runs = 3}));
    EXPECT_EQ(memory.used_bytes(), bytes);
    EXPECT_THAT(part->sources, ElementsAre(Key(0), Key(1)));
  }
  EXPECT_EQ(memory.used_bytes(), 0);
}

TEST(LaidOutPartTest, APartForWhichThereIsTooLittleMemoryIsRefusedByName) {
  const int64_t bytes = PreparedPart::BytesFor(*PartOf(0), 3);
  MemoryBudget memory{ByteCount(bytes - 1)};
  EXPECT_THAT(LaidOutPart::Admit(PartOf(0), {.name = "the part", .memory = memory, .runs = 3}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the part")));
  EXPECT_EQ(memory.used_bytes(), 0);
  EXPECT_OK(LaidOutPart::Admit(PartOf(0), {.name = "the part", .memory = memory, .runs = 2}));
}

}  // namespace
}  // namespace crossmesh
