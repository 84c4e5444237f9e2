#include "worker/pipeline/rank_queue.h"

#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/event_loop/event_loop.h"
#include "common/testing/status_matchers.h"
#include "worker/pipeline/transfer_memory.h"

#include <functional>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using StepKind = PipelineStep::Kind;

constexpr absl::Duration kAtOnce = absl::ZeroDuration();

class RankQueueTest : public ::testing::Test {
 protected:
  RankQueueTest() {
    MakeQueue();
    data_->Start();
  }

  // A queue without steps, in the place of the one before it.
  void MakeQueue() {
    auto program = std::make_shared<WorkerProgram>();
    program->ranks.push_back({.rank = 4});
    for (int32_t m = 0; m < 3; ++m) {
      program->ranks[0].ops.push_back({.op = {.stage = 1, .microbatch = m}});
    }
    auto memory = std::make_shared<ProgramMemory>();
    memory->program = std::move(program);
    memory_ = memory;
    queue_ = std::make_shared<RankQueue>(
        RankQueue::Ports{.data = *data_, .clock = clock_}, std::move(memory), /*rank=*/0,
        [this](const RankQueue::Outcome& outcome) { outcomes_.push_back(outcome.status); });
    loop_ = MakePipelineLoop(queue_);
  }

  // What the program has been told so far.
  std::vector<absl::Status> Outcomes() {
    std::vector<absl::Status> outcomes;
    EXPECT_TRUE(data_->RunAndWait([&] { outcomes = outcomes_; }));
    return outcomes;
  }

  const RealClock clock_;
  std::vector<absl::Status> outcomes_;  // of the loop
  const std::unique_ptr<EventLoop> data_ = *EventLoop::Create(clock_, {});
  std::weak_ptr<const ProgramMemory> memory_;
  std::shared_ptr<RankQueue> queue_;
  std::unique_ptr<PipelineLoop> loop_;
};

TEST_F(RankQueueTest, AWaitSaysWhetherThereIsAStep) {
  EXPECT_FALSE(loop_->WaitForNext(kAtOnce));
  EXPECT_FALSE(loop_->WaitForNext(absl::Milliseconds(1)));
  queue_->GiveOp(/*iteration=*/7, /*op=*/2);
  EXPECT_TRUE(loop_->WaitForNext(kAtOnce));
  EXPECT_TRUE(loop_->WaitForNext(kAtOnce));  // a wait takes nothing
  const PipelineStep step = loop_->Next();
  EXPECT_EQ(step.kind, StepKind::kOp);
  EXPECT_EQ(step.op->name, "1F2");
  EXPECT_EQ(step.op->iteration, 7);
  EXPECT_FALSE(loop_->WaitForNext(kAtOnce));
  loop_->Done();
  EXPECT_FALSE(loop_->WaitForNext(kAtOnce));
  queue_->GiveComplete(7);
  EXPECT_TRUE(loop_->WaitForNext(kAtOnce));
  EXPECT_EQ(loop_->Next().kind, StepKind::kComplete);
  queue_->GiveStateLost(7, {1});
  EXPECT_TRUE(loop_->WaitForNext(kAtOnce));
  EXPECT_EQ(loop_->Next().kind, StepKind::kStateLost);
}

TEST_F(RankQueueTest, AfterTheEndNoWaitTakesTime) {
  queue_->GiveComplete(1);
  queue_->End(absl::OkStatus());
  for (const StepKind kind : {StepKind::kComplete, StepKind::kOver, StepKind::kOver}) {
    EXPECT_TRUE(loop_->WaitForNext(absl::InfiniteDuration()));
    EXPECT_EQ(loop_->Next().kind, kind);
  }
}

TEST_F(RankQueueTest, AnEndByAnErrorDropsWhatWasNotTaken) {
  queue_->GiveComplete(1);
  queue_->End(absl::DataLossError("cut"));
  EXPECT_TRUE(loop_->WaitForNext(kAtOnce));
  EXPECT_THAT(loop_->Next().why, StatusIs(absl::StatusCode::kDataLoss, "cut"));
}

TEST_F(RankQueueTest, AWaitEndsWithWhatIsGivenMeanwhile) {
  const std::vector<std::function<void()>> gives = {
      [&] { queue_->GiveOp(0, 0); }, [&] { queue_->GiveComplete(0); },
      [&] { queue_->GiveStateLost(0, {0}); }, [&] { queue_->End(absl::OkStatus()); }};
  for (const auto& give : gives) {
    // In nearly all rounds the wait has begun by then: what wakes nothing is not got past.
    for (int round = 0; round < 20; ++round) {
      MakeQueue();
      std::promise<void> begins;
      bool came = false;
      Thread waits("waits", [&] {
        begins.set_value();
        came = loop_->WaitForNext(absl::InfiniteDuration());
      });
      begins.get_future().wait();
      give();
      waits.Join();
      ASSERT_TRUE(came);
    }
  }
}

TEST_F(RankQueueTest, WhoLeavesIsToldOfOnce) {
  queue_->GiveOp(0, 0);
  loop_->Next();
  loop_->Leave();
  loop_->Leave();
  loop_ = nullptr;
  EXPECT_THAT(Outcomes(), ElementsAre(StatusIs(absl::StatusCode::kCancelled,
                                               "the process has left the pipeline")));
}

TEST_F(RankQueueTest, ALoopThatIsGivenUpHasLeft) {
  loop_ = nullptr;
  EXPECT_THAT(Outcomes(), ElementsAre(StatusIs(absl::StatusCode::kCancelled)));
}

TEST_F(RankQueueTest, AFailureSaysMoreThanThatItsProcessHasLeft) {
  queue_->GiveOp(0, 0);
  loop_->Next();
  loop_->Fail(absl::InternalError("no such luck"));
  loop_->Leave();
  const std::vector<absl::Status> outcomes = Outcomes();
  EXPECT_THAT(outcomes, ElementsAre(StatusIs(absl::StatusCode::kInternal, "no such luck"),
                                    StatusIs(absl::StatusCode::kInternal, "no such luck")));
}

TEST_F(RankQueueTest, AfterTheEndNothingIsToldOfWhoLeaves) {
  queue_->End(absl::OkStatus());
  loop_->Leave();
  EXPECT_THAT(Outcomes(), IsEmpty());
}

TEST_F(RankQueueTest, AQuestionThatIsPassedOverIsAnsweredWithThat) {
  queue_->GiveStateLost(0, {1});
  queue_->GiveComplete(0);
  EXPECT_EQ(loop_->Next().kind, StepKind::kStateLost);
  EXPECT_EQ(loop_->Next().kind, StepKind::kComplete);
  EXPECT_THAT(Outcomes(), ElementsAre(StatusIs(absl::StatusCode::kFailedPrecondition,
                                               "its process went on without an answer")));
}

TEST_F(RankQueueTest, TheMemoryOfWhatWasLeftIsThereAsLongAsTheLoop) {
  loop_->Leave();
  data_->Stop();  // what was posted has run, and keeps nothing any more
  queue_ = nullptr;
  EXPECT_FALSE(memory_.expired());
  loop_ = nullptr;
  EXPECT_TRUE(memory_.expired());
}

}  // namespace
}  // namespace crossmesh
