// Random redistributions on GPUs of the stand-in, eight ranks in processes of their own: every byte
// of every destination, and every digest, is that of workers with host memory. CROSSMESH_SEED and
// CROSSMESH_CASES choose what is run.

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/plan/course.h"
#include "common/plan/packed_segments.h"
#include "common/plan/testing/random_source.h"
#include "common/plan/worker_part.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/planning/testing/course_requests.h"
#include "tests/standin/rank_processes.h"
#include "worker/courses/testing/course_mesh.h"
#include "worker/courses/testing/summands.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/testing/mesh_runner.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/compiler/testing/random_compiled_parts.h"
#include "worker/gpu/executor/gpu_legs.h"
#include "worker/gpu/executor/testing/executor_rank.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr int kCourseRanks = 8;
constexpr uint64_t kCourseSeed = 400'000;
constexpr int64_t kCourseCases = 30;

constexpr DataType kCourseTypes[] = {DataType::kF32, DataType::kBF16, DataType::kF16,
                                     DataType::kI32, DataType::kF64,  DataType::kI8,
                                     DataType::kU8,  DataType::kI16,  DataType::kU16,
                                     DataType::kU32, DataType::kI64,  DataType::kU64};

// DataLoss when a destination tile of the device is not the same in both.
absl::Status CompareTiles(const Plan& plan, DeviceRank device, const TileMemory& found,
                          const TileMemory& expected) {
  const BoundTiles& of_gpu = found.tiles(Side::kDestination, device);
  const BoundTiles& of_host = expected.tiles(Side::kDestination, device);
  const TileMap map(plan.tensors(), plan.slicing(), Side::kDestination, device);
  for (size_t tensor = 0; tensor < of_gpu.tensor.size(); ++tensor) {
    if (of_gpu.tensor[tensor] == nullptr) continue;
    const int64_t bytes = map.tile_bytes(plan.tensors().group_of_tensor()[tensor]);
    if (std::memcmp(of_gpu.tensor[tensor], of_host.tensor[tensor], bytes) == 0) continue;
    return absl::DataLossError(absl::StrCat("tensor ", tensor, ": ", bytes, " bytes differ"));
  }
  return absl::OkStatus();
}

// What the workers of host memory leave, at this device alone.
absl::StatusOr<DeviceReport> RunOnHosts(MeshRunner& hosts, const Plan& plan, TileMemory& memory,
                                        bool checksums, DeviceRank device) {
  ASSIGN_OR_RETURN(const MeshOutcome outcome,
                   hosts.Run(plan, std::vector<int32_t>(plan.tensors().devices().size(), 0), memory,
                             {.checksums = checksums}));
  const auto report = outcome.devices.find(device);
  if (report == outcome.devices.end()) return absl::InternalError("no report of host memory");
  return report->second;
}

absl::StatusOr<std::shared_ptr<const PreparedPart>> PartOf(const Plan& plan, DeviceRank device) {
  std::vector<std::vector<DeviceId>> each_alone;
  for (const DeviceId& name : plan.tensors().devices()) each_alone.push_back({name});
  ASSIGN_OR_RETURN(std::vector<WorkerPart> parts, CutParts(plan, each_alone));
  return PreparedPart::Create(std::make_shared<const WorkerPart>(std::move(parts[device])));
}

struct DrawnCourse {
  CourseRequest request;
  Plan plan;
  bool checksums = true;

  const RedistributionInputs& inputs() const { return request.request.redistribution; }
  bool sums() const { return !inputs().source_partial.empty(); }
};

// The first of some requests that takes courses.
absl::StatusOr<DrawnCourse> DrawCourse(RandomSource& random) {
  const bool sums = random.OneIn(2);
  const RandomCourseLimits limits{.devices_max = kCourseRanks,
                                  .type = kCourseTypes[random.Below(std::ssize(kCourseTypes))],
                                  .gpus = !random.OneIn(4)};
  while (true) {
    CourseRequest request = RandomCourseRequest(random.Below(int64_t{1} << 40), sums, limits);
    if (sums && request.request.redistribution.source_partial.empty()) continue;
    if (!random.OneIn(4)) request.sizes.array_bytes = 16;
    ASSIGN_OR_RETURN(Plan plan, PlanOf(request));
    if (!plan.has_courses() || std::ssize(plan.tensors().devices()) > kCourseRanks) continue;
    // Most of what is drawn by chance is too small for several instances.
    if (plan.courses()[0].instances > 1 || random.OneIn(20)) {
      return DrawnCourse{std::move(request), std::move(plan), !random.OneIn(4)};
    }
  }
}

absl::Status RunCourse(ExecutorRank& rank, DeviceRank device, const DrawnCourse& drawn,
                       MeshRunner& hosts) {
  const Plan& plan = drawn.plan;
  if (device >= std::ssize(plan.tensors().devices())) return absl::OkStatus();
  const TileMemory memory(plan);
  TileMemory expected(plan);
  if (drawn.sums()) FillRandomSummands(drawn.inputs(), plan, memory);
  if (drawn.sums()) FillRandomSummands(drawn.inputs(), plan, expected);
  ASSIGN_OR_RETURN(const DeviceReport of_host,
                   RunOnHosts(hosts, plan, expected, drawn.checksums, device));
  ASSIGN_OR_RETURN(const auto part, PartOf(plan, device));
  ASSIGN_OR_RETURN(GpuTaskSpec spec,
                   rank.Spec(part, TilesOf(memory, device),
                             {.staging_bytes = 4 << 20, .checksums = drawn.checksums}));
  ASSIGN_OR_RETURN(const TaskReport report, rank.Run(std::move(spec)));
  RETURN_IF_ERROR(CompareTiles(plan, device, memory, expected));
  if (!drawn.sums()) RETURN_IF_ERROR(memory.CheckUntouched());
  if (report.devices.size() == 1 && report.devices[0].device == device &&
      report.devices[0].bytes == of_host.bytes && report.devices[0].digest == of_host.digest) {
    return absl::OkStatus();
  }
  return absl::InternalError("another report than that of host memory");
}

absl::Status RunCourses(int number, Meeting& meeting, const std::vector<DrawnCourse>& courses) {
  ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
  RETURN_IF_ERROR(rank->JoinAll(kCourseRanks, number, meeting));
  MeshRunner hosts(WithCourseRunners({.workers = 1}));
  for (size_t i = 0; i < courses.size(); ++i) {
    // A rank without a part in the last courses is ahead, and would take the others for stalled.
    meeting.Wait();
    RETURN_IF_ERROR(At(absl::StrCat("course ", i), RunCourse(*rank, number, courses[i], hosts)));
  }
  return rank->Close();
}

TEST(GpuCourseRandom, EveryByteIsThatOfHostMemory) {
  std::vector<DrawnCourse> courses;
  EXPECT_OK(RunRandomCases(kCourseSeed, kCourseCases, [&](RandomSource& random) -> absl::Status {
    ASSIGN_OR_RETURN(DrawnCourse drawn, DrawCourse(random));
    courses.push_back(std::move(drawn));
    return absl::OkStatus();
  }));
  if (FromEnvironment("CROSSMESH_SEED", 0) == 0) {
    const auto has_instances = [](const DrawnCourse& drawn) {
      return drawn.plan.courses()[0].instances > 1;
    };
    EXPECT_GT(std::ranges::count_if(courses, has_instances), 5);
    EXPECT_GT(std::ranges::count_if(courses, &DrawnCourse::sums), 3);
  }
  const auto run = [&](int number, Meeting& meeting) {
    return RunCourses(number, meeting, courses);
  };
  EXPECT_THAT(RunRanks(kCourseRanks, run), testing::Each(testing::IsEmpty()))
      << "Course i is of CROSSMESH_SEED=" << FromEnvironment("CROSSMESH_SEED", kCourseSeed)
      << " + i";
}

// A tensor on six GPUs that takes two steps, and one on two others that takes one: a course for
// each, in whose tables devices have other ranks than in the whole.
DrawnCourse TwoMeshes() {
  const auto placement = [](const char* mesh, const char* layout) {
    return Placement{*ParseMesh(mesh), *ParseLayout(layout)};
  };
  constexpr char kSix[] = "x=2,y=3 on a.0-5";
  constexpr char kTwo[] = "z=2 on b.0-1";
  TensorTable::Spec spec{
      .sources = {placement(kSix, "[x, y]"), placement(kTwo, "[z, -]")},
      .destinations = {placement(kSix, "[y, x]"), placement(kTwo, "[-, z]")},
      .groups = {{.shape = *Shape::Create({{96, 96}})},
                 {.shape = *Shape::Create({{32, 64}}), .source = 1, .destination = 1}},
      .group_of_tensor = {0, 1}};
  CourseRequest request;
  request.request = {.tensors = std::make_shared<const TensorTable>(*TensorTable::Create(spec)),
                     .strategy = Strategy::kRedistribute};
  request.request.redistribution.no_relays = true;
  PutOnGpus(request.request);
  request.sizes = {.array_bytes = 256, .row_elements = 1};
  Plan plan = PlanOf(request).value();
  return {.request = std::move(request), .plan = std::move(plan)};
}

TEST(GpuCourseRandom, DevicesOfACourseFindTheirPeersInTheWhole) {
  std::vector<DrawnCourse> courses;
  courses.push_back(TwoMeshes());
  ASSERT_EQ(courses[0].plan.courses().size(), 2U);
  const auto run = [&](int number, Meeting& meeting) {
    return RunCourses(number, meeting, courses);
  };
  EXPECT_THAT(RunRanks(kCourseRanks, run), testing::Each(testing::IsEmpty()));
}

}  // namespace
}  // namespace crossmesh
