// Every vector of planner/redistribute/testdata, carried out by two workers.

#include "common/plan/course_tables.h"
#include "common/plan/proof.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/planning/testing/course_requests.h"
#include "planner/redistribute/testing/redistribution_vectors.h"
#include "worker/courses/testing/course_mesh.h"
#include "worker/courses/testing/summands.h"

#include <algorithm>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

int64_t ArrayBytes(const Plan& plan) {
  int64_t bytes = 0;
  for (const DeviceId& device : plan.tensors().devices()) {
    int64_t of_device = 0;
    for (const Course<Plan>& course : plan.courses()) {
      of_device = std::max(of_device, CourseMemory(CourseTables(course), device).bytes());
    }
    bytes += of_device;
  }
  return bytes;
}

void RunVector(const RedistributionVector& vector, int64_t array_bytes) {
  CourseRequest request = RequestOf(vector.request, {.devices_of_host = 4, .tensors = 3});
  request.request.redistribution.no_relays = true;
  request.request.redistribution.objective = "bytes";
  request.sizes = {.array_bytes = array_bytes, .row_elements = 1};
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(request));
  ASSERT_OK(Prove(plan));
  TileMemory memory(plan);
  const RedistributionInputs& inputs = request.request.redistribution;
  const bool sums = !inputs.source_partial.empty();
  if (sums) FillSummands(inputs, plan, memory);
  ArrayCount arrays;
  MeshRunner runner(WithCourseRunners({.workers = 2}, &arrays));
  std::vector<int32_t> workers;
  for (size_t i = 0; i < plan.tensors().devices().size(); ++i) {
    workers.push_back(static_cast<int32_t>(2 * i / plan.tensors().devices().size()));
  }
  ASSERT_OK_AND_ASSIGN(const MeshOutcome outcome, runner.Run(plan, workers, memory, {}));
  for (const auto& [device, report] : outcome.devices) {
    EXPECT_OK(report.status);
    if (!sums) EXPECT_OK(memory.CheckDestination(device));
  }
  if (sums) EXPECT_OK(CheckSums(inputs, plan, memory));
  EXPECT_EQ(arrays.bytes(), ArrayBytes(plan));
}

// What a cap leaves beside both ends: room for arrays as large as they come, for some, and for the
// smallest that there are.
TEST(CourseVectors, EveryElementArrivesAndArraysAreAsPredicted) {
  for (const RedistributionVector& vector : RedistributionVectors()) {
    for (const int64_t array_bytes : {int64_t{1} << 40, int64_t{256}, int64_t{1}}) {
      SCOPED_TRACE(absl::StrCat(vector.id, ", arrays of ", array_bytes));
      RunVector(vector, array_bytes);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace crossmesh
