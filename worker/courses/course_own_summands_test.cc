// Summands that devices have themselves: they are read where they are, unless they do not stay.

#include "common/mesh/layout.h"
#include "common/mesh/shape.h"
#include "common/plan/course.h"
#include "common/plan/plan.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/planning/testing/course_requests.h"
#include "worker/courses/testing/course_mesh.h"
#include "worker/courses/testing/summands.h"
#include "worker/executor/testing/mesh_runner.h"
#include "worker/executor/testing/tile_memory.h"

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Of two matrices of 128 KiB of F32 on two axes of two devices.
struct Sums {
  const char* source;
  const char* destination;
  std::vector<std::string> partial;
  const char* shape = "[64, 512]";
};

constexpr int64_t kBytes = int64_t{256} << 10;

CourseRequest RequestFor(const Sums& sums) {
  const std::vector<Axis> axes = {{"x", 2}, {"y", 2}};
  CourseRequest made =
      RequestOf({.axes = axes,
                 .shape = *ParseShape(sums.shape),
                 .item_bytes = 4,
                 .source = EndOf(*ParseLayout(sums.source), axes, sums.partial).value(),
                 .destination = EndOf(*ParseLayout(sums.destination), axes).value()},
                {.tensors = 2});
  made.sizes = {.array_bytes = 8 << 10,

                .row_elements = 64,
                .released_row_elements = 64};
  return made;
}

// What the workers have copied, each of which has one device, when all sums are right.
int64_t CopiedBytes(const CourseRequest& course) {
  const absl::StatusOr<Plan> plan = PlanOf(course);
  if (!plan.ok()) {
    ADD_FAILURE() << plan.status();
    return 0;
  }
  EXPECT_TRUE(plan->courses()[0].steps[0].reduction.has_value());
  EXPECT_FALSE(plan->courses()[0].steps[0].adds_own);
  MeshRunner runner(WithCourseRunners({.workers = 4}));
  TileMemory memory(*plan);
  FillRoundedSummands(course.request.redistribution, *plan, memory);
  const absl::StatusOr<MeshOutcome> outcome = runner.Run(*plan, {0, 1, 2, 3}, memory, {});
  if (!outcome.ok()) {
    ADD_FAILURE() << outcome.status();
    return 0;
  }
  EXPECT_OK(CheckSumsInOrder(course.request.redistribution, *plan, memory));
  int64_t copied = 0;
  for (const TaskReport& report : outcome->reports) {
    EXPECT_OK(report.status);
    copied += report.copied_bytes;
  }
  return copied;
}

const Sums kSumsInParts[] = {
    {"[-, -]", "[x*y, -]", {"x", "y"}},
    {"[-, -]", "[-, y*x]", {"x", "y"}},
    {"[y, -]", "[y, x]", {"x"}},
    {"[-, x]", "[y, x]", {"y"}},
};

TEST(CourseOwnSummands, AreNotCopied) {
  for (const Sums& sums : kSumsInParts) {
    SCOPED_TRACE(absl::StrCat(sums.source, " to ", sums.destination));
    EXPECT_EQ(CopiedBytes(RequestFor(sums)), 0);
  }
}

// Each device copies its part of the sum beside the others.
TEST(CourseOwnSummands, AreNotCopiedWhereSumsGoToAll) {
  EXPECT_EQ(CopiedBytes(RequestFor({"[-, -]", "[-, -]", {"x", "y"}})), kBytes);
}

TEST(CourseOwnSummands, AreCopiedWhereTheSourceIsReleased) {
  for (const Sums& sums : kSumsInParts) {
    SCOPED_TRACE(absl::StrCat(sums.source, " to ", sums.destination));
    CourseRequest course = RequestFor(sums);
    course.request.binding = BindingMode::kInPlace;
    course.request.redistribution.release_source = true;
    EXPECT_EQ(CopiedBytes(course), kBytes);
  }
}

// Of one memory, which the sums that come overwrite.
TEST(CourseOwnSummands, AreCopiedWhereTheDestinationTakesTheirPlace) {
  CourseRequest course = RequestFor({"[-, -]", "[-, -]", {"x", "y"}});
  course.request.binding = BindingMode::kInPlace;
  course.request.shared_storage = true;
  EXPECT_EQ(CopiedBytes(course), 2 * kBytes);
}

// A few elements at a time would take longer.
TEST(CourseOwnSummands, AreCopiedInShortRuns) {
  EXPECT_EQ(CopiedBytes(RequestFor({"[-, -]", "[-, y*x]", {"x", "y"}, "[512, 64]"})), kBytes);
}

}  // namespace
}  // namespace crossmesh
