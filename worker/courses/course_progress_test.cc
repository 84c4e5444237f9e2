#include "worker/courses/course_progress.h"

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using At = CourseProgress::At;

TEST(CourseProgress, AStepBeginsWithRoomAndIsFedByTheStepBeforeIt) {
  CourseProgress progress({.reduces = {false, false}, .instances = 3, .buffers = 1});
  EXPECT_EQ(progress.Begin(), (At{0, 0}));
  EXPECT_EQ(progress.Begin(), std::nullopt);  // the only array waits for its reader
  EXPECT_EQ(progress.Feed(), (At{0, 0}));
  progress.OnMoved({0, 0});
  EXPECT_EQ(progress.Begin(), (At{1, 0}));
  EXPECT_EQ(progress.Begin(), std::nullopt);
  EXPECT_EQ(progress.Feed(), (At{1, 0}));
  progress.OnMoved({1, 0});
  EXPECT_EQ(progress.Begin(), (At{0, 1}));
}

TEST(CourseProgress, WhatAwaitsItsSourceBeginsAndIsFedWhenThatIsThere) {
  CourseProgress progress(
      {.reduces = {false, false}, .instances = 2, .buffers = 2, .awaits_source = true});
  EXPECT_EQ(progress.Begin(), (At{0, 0}));
  EXPECT_EQ(progress.Begin(), (At{0, 1}));
  EXPECT_EQ(progress.Feed(), std::nullopt);
  // It had nothing to send itself.
  progress.OnMoved({0, 0});
  EXPECT_EQ(progress.Begin(), (At{1, 0}));
  EXPECT_EQ(progress.Feed(), (At{1, 0}));
  EXPECT_EQ(progress.Feed(), std::nullopt);
  progress.OnSource();
  EXPECT_EQ(progress.Feed(), (At{0, 1}));
}

TEST(CourseProgress, WithBuffersStepsOfSeveralInstancesOverlap) {
  CourseProgress progress({.reduces = {false, false}, .instances = 4, .buffers = 2});
  EXPECT_EQ(progress.Begin(), (At{0, 0}));
  EXPECT_EQ(progress.Begin(), (At{0, 1}));
  EXPECT_EQ(progress.Begin(), std::nullopt);
  progress.Feed();
  progress.Feed();
  progress.OnMoved({0, 1});
  progress.OnMoved({0, 0});
  EXPECT_EQ(progress.Begin(), (At{1, 0}));
  EXPECT_EQ(progress.Begin(), (At{1, 1}));
  EXPECT_EQ(progress.Begin(), std::nullopt);
  EXPECT_EQ(progress.Feed(), (At{1, 0}));
  progress.OnMoved({1, 0});
  EXPECT_EQ(progress.Begin(), (At{0, 2}));
}

TEST(CourseProgress, SummandsAreReducedBeforeTheNextStepIsFed) {
  CourseProgress progress({.reduces = {true, false}, .instances = 1, .buffers = 1});
  EXPECT_EQ(progress.Begin(), (At{0, 0}));
  EXPECT_EQ(progress.Feed(), (At{0, 0}));
  EXPECT_EQ(progress.Reduce(), std::nullopt);
  progress.OnMoved({0, 0});
  EXPECT_EQ(progress.Reduce(), (At{0, 0}));
  EXPECT_EQ(progress.Reduce(), std::nullopt);
  EXPECT_EQ(progress.Begin(), std::nullopt);
  progress.OnReduced({0, 0});
  EXPECT_EQ(progress.Begin(), (At{1, 0}));
  EXPECT_EQ(progress.Feed(), (At{1, 0}));
  EXPECT_FALSE(progress.done());
  progress.OnMoved({1, 0});
  EXPECT_TRUE(progress.done());
}

// It may fill the memory that the first one reads.
TEST(CourseProgress, TheLastStepBeginsWhenTheFirstHasMoved) {
  CourseProgress progress({.reduces = {false, false, false}, .instances = 2, .buffers = 2});
  EXPECT_EQ(progress.Begin(), (At{0, 0}));
  EXPECT_EQ(progress.Begin(), (At{1, 0}));
  EXPECT_EQ(progress.Begin(), (At{0, 1}));
  EXPECT_EQ(progress.Begin(), (At{1, 1}));
  EXPECT_EQ(progress.Begin(), std::nullopt);
  EXPECT_EQ(progress.Feed(), (At{0, 0}));
  progress.OnMoved({0, 0});
  EXPECT_EQ(progress.Begin(), (At{2, 0}));
}

TEST(CourseProgress, WhoSendsNothingMayHaveMovedBeforeItIsFed) {
  CourseProgress progress({.reduces = {false}, .instances = 2, .buffers = 2});
  EXPECT_EQ(progress.Begin(), (At{0, 0}));
  EXPECT_EQ(progress.Begin(), (At{0, 1}));
  progress.OnMoved({0, 0});
  EXPECT_EQ(progress.Feed(), (At{0, 1}));
  progress.OnMoved({0, 1});
  EXPECT_TRUE(progress.done());
}

// Of three steps a worker has no part in the second, the third or both.
TEST(CourseProgress, AnArrayIsFreeWhenItIsFilledAsWellAsRead) {
  CourseProgress progress({.reduces = {false, false, false}, .instances = 2, .buffers = 1});
  EXPECT_EQ(progress.Begin(), (At{0, 0}));
  EXPECT_EQ(progress.Begin(), (At{1, 0}));
  progress.OnMoved({1, 0});
  EXPECT_EQ(progress.Begin(), std::nullopt);  // its array is being filled
  progress.OnMoved({0, 0});
  EXPECT_EQ(progress.Begin(), (At{2, 0}));
  EXPECT_EQ(progress.Begin(), (At{0, 1}));
}

TEST(CourseProgress, AnArrayThatNobodyReadsIsFreeWhenItIsFilled) {
  CourseProgress progress({.reduces = {false, false, false}, .instances = 2, .buffers = 1});
  EXPECT_EQ(progress.Begin(), (At{0, 0}));
  EXPECT_EQ(progress.Begin(), (At{1, 0}));
  progress.OnMoved({0, 0});
  EXPECT_EQ(progress.Begin(), (At{2, 0}));
  progress.OnMoved({2, 0});
  EXPECT_EQ(progress.Begin(), std::nullopt);  // the second step has not moved
  progress.OnMoved({1, 0});
  EXPECT_EQ(progress.Begin(), (At{0, 1}));
  EXPECT_EQ(progress.Begin(), (At{1, 1}));
}

// Of three steps of which a worker has part in none.
TEST(CourseProgress, ItIsDoneWhenEveryStepIs) {
  CourseProgress progress({.reduces = {false, true, false}, .instances = 2, .buffers = 2});
  while (progress.Begin().has_value()) {
  }
  progress.OnMoved({0, 0});
  progress.OnMoved({0, 1});
  EXPECT_EQ(progress.Begin(), (At{2, 0}));
  EXPECT_EQ(progress.Begin(), (At{2, 1}));
  progress.OnMoved({2, 0});
  progress.OnMoved({2, 1});
  progress.OnMoved({1, 1});
  progress.OnMoved({1, 0});
  EXPECT_EQ(progress.Reduce(), (At{1, 0}));
  progress.OnReduced({1, 0});
  EXPECT_FALSE(progress.done());
  EXPECT_EQ(progress.Reduce(), (At{1, 1}));
  progress.OnReduced({1, 1});
  EXPECT_TRUE(progress.done());
}

// Several workers, each with its own progress and with part in some steps: an instance of a step
// moves when all that have part in it have begun it, and its own bytes are there; at others when
// they have begun it.
class Workers {
 public:
  explicit Workers(uint64_t seed) : random_(seed) {
    const int steps = 1 + static_cast<int>(random_() % 4);
    for (int k = 0; k < steps; ++k) settings_.reduces.push_back(random_() % 2 == 0);
    settings_.instances = 1 + static_cast<int32_t>(random_() % 7);
    settings_.buffers = 1 + static_cast<int32_t>(random_() % settings_.instances);
    for (int w = 0; w < 3; ++w) {
      Worker& worker = workers_.emplace_back(CourseProgress(settings_));
      for (int k = 0; k < steps; ++k) worker.has_part.push_back(random_() % 4 > 0);
    }
  }

  void Run() {
    for (bool any = true; any;) {
      any = false;
      // Each time that a worker is looked at it does one thing of each kind at most.
      for (Worker& worker : workers_) any = StepOf(worker) || any;
      for (int32_t step = 0; step < std::ssize(settings_.reduces); ++step) {
        for (int32_t i = 0; i < settings_.instances; ++i) any = Move({step, i}) || any;
      }
    }
  }
  bool done() const {
    return std::ranges::all_of(workers_,
                               [](const Worker& worker) { return worker.progress.done(); });
  }

 private:
  struct Worker {
    explicit Worker(CourseProgress of) : progress(std::move(of)) {}

    CourseProgress progress;
    std::vector<bool> has_part;  // [step]
    std::set<std::pair<int32_t, int32_t>> begun, fed, moved;
    std::vector<At> reducing;
  };
  static std::pair<int32_t, int32_t> Of(At at) { return {at.step, at.instance}; }

  bool StepOf(Worker& worker) {
    bool any = !worker.reducing.empty();
    if (const auto at = worker.progress.Begin()) {
      const At before{.step = at->step, .instance = at->instance - settings_.buffers};
      EXPECT_TRUE(before.instance < 0 || worker.moved.contains(Of(before)));
      any = worker.begun.insert(Of(*at)).second;
    }
    if (const auto at = worker.progress.Feed()) any = worker.fed.insert(Of(*at)).second;
    if (const auto at = worker.progress.Reduce()) {
      worker.reducing.push_back(*at);
      return true;
    }
    if (!worker.reducing.empty() && random_() % 2 == 0) {
      worker.progress.OnReduced(worker.reducing.back());
      worker.reducing.pop_back();
    }
    return any;
  }

  bool Move(At at) {
    const bool ready = std::ranges::all_of(workers_, [&](const Worker& worker) {
      return !worker.has_part[at.step] ||
             (worker.begun.contains(Of(at)) && worker.fed.contains(Of(at)));
    });
    bool any = false;
    for (Worker& worker : workers_) {
      if (worker.has_part[at.step] ? !ready : !worker.begun.contains(Of(at))) continue;
      if (!worker.moved.insert(Of(at)).second) continue;
      worker.progress.OnMoved(at);
      any = true;
    }
    return any;
  }

  std::mt19937_64 random_;
  CourseProgress::Settings settings_;
  std::vector<Worker> workers_;
};

TEST(CourseProgress, WorkersNeverWaitForEachOtherInACircle) {
  for (uint64_t seed = 1; seed <= 2000 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Workers workers(seed);
    workers.Run();
    EXPECT_TRUE(workers.done());
  }
}

}  // namespace
}  // namespace crossmesh
