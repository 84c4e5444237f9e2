#include "worker/executor/due_queue.h"

#include "common/base/check.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/tables.h"
#include "common/plan/worker_part.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kAll = DueTime::kParts;

// A part with one channel whose entries have so many leaves each, a chunk a leaf, due as given.
struct Timing {
  int64_t leaves = 1;
  DueTime due;
};

std::shared_ptr<const PreparedPart> PartWith(const std::vector<Timing>& entries) {
  int64_t leaves = 0;
  for (const Timing& entry : entries) leaves += entry.leaves;
  auto tensors = std::make_shared<const TensorTable>(
      TableOf({{.shape = absl::StrCat("[", leaves * Plan::kLeafBytes, "]"),
                .source_mesh = "x=1 on a.0",
                .source = "[-]",
                .destination_mesh = "x=1 on b.0",
                .destination = "[-]",
                .type = DataType::kU8}}));
  auto slicing = std::make_shared<const Slicing>(*Slicing::Create(*tensors));
  Plan::Spec spec{.tensors = tensors, .slicing = slicing, .chunk_bytes = Plan::kLeafBytes};
  int64_t begin = 0;
  for (const Timing& entry : entries) {
    const int64_t end = begin + entry.leaves * Plan::kLeafBytes;
    spec.relays.push_back({.root = 0,
                           .begin = std::exchange(begin, end),
                           .end = end,
                           .first_hop = std::ssize(spec.hops),
                           .hop_count = 1,
                           .due = entry.due});
    spec.hops.push_back({.from = 0, .to = 1});
  }
  PlaceHopsInPlanOrder(spec);
  const Plan plan = *Plan::Create(std::move(spec));
  auto parts = *CutParts(plan, {{plan.tensors().devices()[0]}, {plan.tensors().devices()[1]}});
  return *PreparedPart::Create(std::make_shared<const WorkerPart>(std::move(parts[0])));
}

class DueQueueTest : public testing::Test {
 protected:
  void Make(const std::vector<Timing>& entries) {
    part_ = PartWith(entries);
    queue_ = std::make_unique<DueQueue>(*part_, part_->channels()[0]);
  }
  // Of so many messages: which entry's. All that are left by default.
  std::vector<int32_t> Take(int64_t count = 1000) {
    std::vector<int32_t> entries;
    for (; count > 0 && !queue_->idle(); --count) {
      entries.push_back(queue_->entry());
      queue_->Advance();
    }
    return entries;
  }

  std::shared_ptr<const PreparedPart> part_;
  std::unique_ptr<DueQueue> queue_;
};

TEST_F(DueQueueTest, WithoutDueTimesEntriesComeOneAfterTheOther) {
  Make({{2, {}}, {1, {}}, {1, {}}});
  EXPECT_THAT(Take(), ElementsAre(0, 0, 0, 1, 1, 2, 2));
  EXPECT_TRUE(queue_->finished());
}

TEST_F(DueQueueTest, WhatIsDueSideBySideIsSentSideBySide) {
  Make({{4, {0, kAll}}, {2, {0, kAll}}});
  // Chunks are due at 0, 1/4, 1/2, 3/4 and 0, 1/2; the ends at 1.
  EXPECT_THAT(Take(), ElementsAre(0, 1, 0, 0, 1, 0, 0, 1));
}

TEST_F(DueQueueTest, WhatIsDueLaterWaits) {
  Make({{2, {kAll / 2, kAll}}, {2, {0, kAll / 2}}});
  // The end of entry 1 and the beginning of entry 0 are both due half way.
  EXPECT_THAT(Take(), ElementsAre(1, 1, 0, 1, 0, 0));
}

TEST_F(DueQueueTest, TheLeastDifferenceDecidesBeforeTheOrderOfEntries) {
  Make({{1, {1, 2}}, {1, {0, 1}}});
  EXPECT_EQ(queue_->due(), 0);
  EXPECT_THAT(Take(), ElementsAre(1, 0, 1, 0));
}

TEST_F(DueQueueTest, ARewoundQueueForgetsWhatSleptAndWhatHadEnded) {
  Make({{2, {}}, {1, {}}, {1, {}}});
  EXPECT_THAT(Take(1), ElementsAre(0));
  queue_->Sleep();
  queue_->EndEntry();
  queue_->Rewind();
  EXPECT_FALSE(queue_->finished());
  queue_->Wake(0);  // it does not sleep any more
  EXPECT_EQ(queue_->chunk(), 0);
  EXPECT_THAT(Take(), ElementsAre(0, 0, 0, 1, 1, 2, 2));
  EXPECT_TRUE(queue_->finished());
}

TEST_F(DueQueueTest, AnEntryThatSleepsHoldsUpNoOther) {
  Make({{2, {}}, {1, {}}});
  EXPECT_THAT(Take(1), ElementsAre(0));
  queue_->Sleep();
  EXPECT_THAT(Take(), ElementsAre(1, 1));
  EXPECT_TRUE(queue_->idle());
  EXPECT_FALSE(queue_->finished());
  queue_->Wake(1);
  EXPECT_TRUE(queue_->idle()) << "it has ended";
  queue_->Wake(0);
  queue_->Wake(0);
  EXPECT_EQ(queue_->chunk(), 1);
  EXPECT_THAT(Take(), ElementsAre(0, 0));
  EXPECT_TRUE(queue_->finished());
}

TEST_F(DueQueueTest, AnEntryMayEndBeforeItsTime) {
  Make({{3, {}}, {1, {}}});
  EXPECT_THAT(Take(1), ElementsAre(0));
  queue_->EndEntry();
  EXPECT_THAT(Take(), ElementsAre(1, 1));
  EXPECT_TRUE(queue_->finished());
}

}  // namespace
}  // namespace crossmesh
