#include "controller/operation/pipeline_machine.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using Machine = PipelineMachine;

// Workers that do anything they may, and a clock that may run out at any time. Checks that the
// machine asks for nothing that cannot be done.
class RandomWorld {
 public:
  explicit RandomWorld(uint32_t seed)
      : random_(seed),
        iterations_(1 + Below(6)),
        machine_({.iterations = iterations_, .stop_at_failure = Below(4) == 0}) {
    for (int64_t i = 0; i <= Below(4); ++i) workers_.push_back(absl::StrCat("w", i));
  }

  // The events that it took.
  int RunToTheEnd() {
    int events = 0;
    for (; !finished_ && events < 10'000; ++events) {
      for (const Machine::Action& action : machine_.Handle(AnyEvent())) {
        std::visit([this](const auto& a) { Do(a); }, action);
      }
    }
    EXPECT_TRUE(finished_);
    EXPECT_TRUE(IsTerminal(machine_.state()));
    EXPECT_TRUE(calls_.empty());
    EXPECT_EQ(machine_.state() == PipelineRunState::kDone, machine_.error().ok());
    if (machine_.state() == PipelineRunState::kDone) {
      EXPECT_EQ(tried_, iterations_);
      EXPECT_TRUE(last_complete_);
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

  Machine::Event AnyEvent() {
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
  void Do(const Machine::BeginIteration& action) {
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
  void Do(const Machine::StopPrograms&) {
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
    last_complete_ = action.status.ok();
  }
  void Do(const Machine::Publish&) {}
  void Do(const Machine::Finish&) {
    EXPECT_FALSE(finished_);
    finished_ = true;
  }

  std::mt19937 random_;
  const int64_t iterations_;
  Machine machine_;
  std::vector<std::string> workers_;
  std::map<std::string, Call> calls_;
  int64_t iteration_ = 0;
  int64_t tried_ = 0;
  bool last_complete_ = false;
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
