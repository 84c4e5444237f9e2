#include "worker/courses/course_progress.h"

#include <algorithm>
#include <optional>
#include <random>
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

// Several workers, each with its own progress: an instance of a step moves when all of them have
// begun it, and its own bytes are there.
TEST(CourseProgress, WorkersNeverWaitForEachOtherInACircle) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    std::mt19937_64 random(seed);
    CourseProgress::Settings settings;
    const int steps = 1 + static_cast<int>(random() % 4);
    for (int k = 0; k < steps; ++k) settings.reduces.push_back(random() % 2 == 0);
    settings.instances = 1 + static_cast<int32_t>(random() % 7);
    settings.buffers = 1 + static_cast<int32_t>(random() % settings.instances);
    constexpr int kWorkers = 3;
    std::vector<CourseProgress> workers(kWorkers, CourseProgress(settings));
    const auto index = [&](At at) { return at.step * settings.instances + at.instance; };
    const int count = steps * settings.instances;
    std::vector<std::vector<bool>> begun(kWorkers, std::vector<bool>(count));
    std::vector<std::vector<bool>> fed(kWorkers, std::vector<bool>(count));
    std::vector<std::vector<bool>> moved(kWorkers, std::vector<bool>(count));
    std::vector<std::vector<At>> reducing(kWorkers);
    for (bool any = true; any;) {
      any = false;
      for (int w = 0; w < kWorkers; ++w) {
        // Each time that the worker is looked at it does one thing of each kind at most.
        if (const auto at = workers[w].Begin()) any = begun[w][index(*at)] = true;
        if (const auto at = workers[w].Feed()) any = fed[w][index(*at)] = true;
        if (const auto at = workers[w].Reduce()) {
          any = true;
          reducing[w].push_back(*at);
        } else if (!reducing[w].empty() && random() % 2 == 0) {
          workers[w].OnReduced(reducing[w].back());
          reducing[w].pop_back();
          any = true;
        }
        any = any || !reducing[w].empty();
      }
      for (int i = 0; i < count; ++i) {
        const At at{i / settings.instances, i % settings.instances};
        const bool ready = std::ranges::all_of(std::vector{0, 1, 2},
                                               [&](int w) { return begun[w][i] && fed[w][i]; });
        for (int w = 0; ready && w < kWorkers; ++w) {
          if (moved[w][i]) continue;
          moved[w][i] = true;
          workers[w].OnMoved(at);
          any = true;
        }
      }
    }
    for (const CourseProgress& worker : workers) ASSERT_TRUE(worker.done()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace crossmesh
