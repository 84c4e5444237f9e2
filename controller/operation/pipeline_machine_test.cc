#include "controller/operation/pipeline_machine.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using Machine = PipelineMachine;

// Workers that do anything they may, a clock that may run out at any time, and controllers that end
// at any time, of which the next one knows what is on record alone. Checks that the machine asks
// for nothing that cannot be done, and that workers are told nothing that the next one would not
// know.
class RandomWorld {
 public:
  explicit RandomWorld(uint32_t seed)
      : random_(seed),
        options_{.iterations = 1 + Below(6), .stop_at_failure = Below(4) == 0},
        machine_(std::in_place, options_) {
    for (int64_t i = 0; i <= Below(4); ++i) workers_.push_back(absl::StrCat("w", i));
  }

  // The events that it took.
  int RunToTheEnd() {
    int events = 0;
    for (; !finished_ && events < 10'000; ++events) {
      if (Below(100) == 0) {
        TakeUp();
      } else {
        Feed(AnyEvent());
      }
    }
    EXPECT_TRUE(finished_);
    EXPECT_TRUE(IsTerminal(machine_->state()));
    EXPECT_TRUE(calls_.empty());
    EXPECT_EQ(machine_->state() == PipelineRunState::kDone, machine_->error().ok());
    if (machine_->state() == PipelineRunState::kDone) {
      EXPECT_EQ(tried_, options_.iterations);
      EXPECT_EQ(complete_, options_.iterations - 1);
      EXPECT_EQ(recorded_.complete, complete_);
    }
    return events;
  }

 private:
  struct Call {
    bool accepted = false;
    bool iterates = false;
    bool stopped = false;
    bool cancelled = false;
  };

  int64_t Below(int64_t bound) { return static_cast<int64_t>(random_() % bound); }
  absl::Status AnyError() {
    const absl::StatusCode codes[] = {absl::StatusCode::kUnavailable, absl::StatusCode::kInternal};
    return absl::Status(codes[Below(20) == 0 ? 1 : 0], "of a random world");
  }

  void Feed(const Machine::Event& event) {
    for (const Machine::Action& action : machine_->Handle(event)) {
      std::visit([this](const auto& a) { Do(a); }, action);
    }
  }

  // Another controller: the calls of the former one have broken.
  void TakeUp() {
    calls_.clear();
    // What was on its way to the store may have got there.
    if (recording_.has_value() && Below(2) == 0) recorded_ = *recording_;
    recording_.reset();
    EXPECT_GE(recorded_.complete.value_or(-1), told_);
    EXPECT_GE(recorded_.begun.value_or(-1), begun_);
    complete_ = recorded_.complete.value_or(-1);
    tried_ = std::max(recorded_.begun.value_or(0), complete_ + 1);
    machine_.emplace(options_);
    Feed(Machine::TakenUp{recorded_});
  }

  Machine::Event AnyEvent() {
    if (recording_.has_value() && Below(2) == 0) {
      const PipelineProgress progress = *std::exchange(recording_, std::nullopt);
      if (Below(50) == 0) return Machine::ProgressRecorded{absl::AbortedError("fenced")};
      recorded_ = progress;
      return Machine::ProgressRecorded{};
    }
    const int64_t kind = Below(100);
    if (kind == 0) return Machine::StopRequested{Below(2) == 0, "at random"};
    if (kind < 5) return Machine::TimePassed{static_cast<Machine::Wait>(Below(4))};
    if (kind < 7) return Machine::WorkerGone{workers_[Below(std::ssize(workers_))], AnyError()};
    if (calls_.empty()) {
      if (kind < 10) return Machine::PreparationFailed{AnyError()};
      if (kind < 50) return Machine::WorkersMissing{AnyError()};
      return Machine::WorkersReady{workers_};
    }
    const auto at = std::next(calls_.begin(), Below(std::ssize(calls_)));
    const std::string worker = at->first;
    Call& call = at->second;
    const bool ends = call.cancelled || (call.stopped && kind < 70) || kind < 9;
    if (ends) {
      calls_.erase(at);
      return Machine::CallEnded{worker, kind < 40 ? AnyError() : absl::OkStatus()};
    }
    if (!call.accepted) {
      call.accepted = true;
      return Machine::Accepted{worker};
    }
    call.iterates = false;
    return Machine::Reported{worker, iteration_, kind < 20 ? AnyError() : absl::OkStatus(), {}};
  }

  void Do(const Machine::StartPrograms&) {
    EXPECT_TRUE(calls_.empty()) << "programs start beside others";
    for (const std::string& worker : workers_) calls_[worker] = {};
  }
  void Do(const Machine::RecordProgress& action) {
    EXPECT_FALSE(recording_.has_value()) << "recorded twice at once";
    recording_ = action.progress;
  }
  void Do(const Machine::BeginIteration& action) {
    EXPECT_GT(action.iteration, begun_) << "a number is used again";
    begun_ = action.iteration;
    EXPECT_EQ(recorded_.begun, begun_);
    Tell();
    EXPECT_EQ(action.iteration, tried_);
    EXPECT_EQ(calls_.size(), workers_.size());
    iteration_ = action.iteration;
    for (auto& [worker, call] : calls_) {
      EXPECT_TRUE(call.accepted);
      EXPECT_FALSE(call.iterates) << "the barrier is not one";
      EXPECT_FALSE(call.stopped);
      call.iterates = true;
    }
  }
  void Do(const Machine::StopPrograms& action) {
    if (action.reason.empty()) Tell();
    for (auto& [worker, call] : calls_) {
      EXPECT_FALSE(call.stopped) << "stopped twice";
      call.stopped = true;
    }
  }
  void Do(const Machine::CancelCall& action) {
    if (calls_.contains(action.worker)) calls_[action.worker].cancelled = true;
  }
  void Do(const Machine::AwaitWorkers&) { EXPECT_TRUE(calls_.empty()); }
  void Do(const Machine::StartTimer&) {}
  void Do(const Machine::EndIteration& action) {
    EXPECT_EQ(action.iteration, tried_++);
    if (action.status.ok()) complete_ = action.iteration;
  }
  void Do(const Machine::Publish&) {}
  void Do(const Machine::Finish&) {
    EXPECT_FALSE(finished_);
    finished_ = true;
  }

  // Workers that all which was complete so far is.
  void Tell() {
    told_ = complete_;
    EXPECT_EQ(recorded_.complete.value_or(-1), told_);
  }

  std::mt19937 random_;
  const Machine::Options options_;
  std::optional<Machine> machine_;
  std::vector<std::string> workers_;
  std::map<std::string, Call> calls_;
  int64_t iteration_ = 0;
  int64_t tried_ = 0;
  int64_t complete_ = -1;  // the last one
  int64_t told_ = -1;      // that workers know to be complete
  int64_t begun_ = -1;     // the highest number of all
  PipelineProgress recorded_;
  std::optional<PipelineProgress> recording_;
  bool finished_ = false;
};

TEST(PipelineMachineTest, EveryRandomWalkEnds) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomWorld(seed).RunToTheEnd();
    if (testing::Test::HasFailure()) return;
  }
}

// Of a run whose only iteration fails where its ranks are at so many positions.
std::string ErrorWith(int positions) {
  Machine machine({.iterations = 1});
  machine.Handle(Machine::WorkersReady{{"w"}});
  machine.Handle(Machine::Accepted{"w"});
  machine.Handle(Machine::ProgressRecorded{});
  machine.Handle(Machine::Reported{"w", 0, absl::AbortedError("why"),
                                   std::vector<std::string>(positions, "p")});
  machine.Handle(Machine::CallEnded{"w", absl::OkStatus()});
  return std::string(machine.error().message());
}

TEST(PipelineMachineTest, AnErrorTellsSoManyPositionsOnly) {
  const std::string message = ErrorWith(Machine::kPositionsMax + 3);
  EXPECT_EQ(std::ranges::count(message, ';'), Machine::kPositionsMax + 1);
  EXPECT_NE(message.find("; and 3 more"), std::string::npos);
}

TEST(PipelineMachineTest, AnErrorTellsAsManyPositionsAsItMay) {
  const std::string message = ErrorWith(Machine::kPositionsMax);
  EXPECT_EQ(std::ranges::count(message, ';'), Machine::kPositionsMax);
  EXPECT_TRUE(message.ends_with("; p")) << message;
}

}  // namespace
}  // namespace crossmesh
