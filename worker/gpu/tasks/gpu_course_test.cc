// Redistributions of a worker with three GPUs, each in its process: a matrix of which each has a
// summand comes to all of them, reduced in parts and gathered.

#include "common/base/check.h"
#include "common/plan/course_tables.h"
#include "common/plan/step_kind.h"
#include "common/plan/worker_part.h"
#include "common/testing/send_signal.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/planning/testing/course_requests.h"
#include "worker/courses/counted_course_runner.h"
#include "worker/executor/executor.h"
#include "worker/executor/prepared_part.h"
#include "worker/gpu/devices/testing/stand_in_gpus.h"
#include "worker/gpu/protocol/testing/gpu_requests_of_tests.h"
#include "worker/gpu/tasks/gpu_task_runner.h"
#include "worker/gpu/tasks/testing/bridged_workers.h"
#include "worker/memory/arena.h"
#include "worker/transport/testing/inprocess_fabric.h"
#include "worker/transport/testing/inprocess_transport.h"

#include <csignal>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kRowsOfSum = 48;
constexpr int64_t kColumnsOfSum = 96;
constexpr int64_t kSumElements = kRowsOfSum * kColumnsOfSum;
constexpr int64_t kSumBytes = 4 * kSumElements;
constexpr DeviceRank kSumGpus = 3;

Plan PlanOfSums() {
  const std::vector<Axis> axes = {{"x", kSumGpus}};
  const RedistributionRequest sums{
      .axes = axes,
      .shape = Shape::Create({{kRowsOfSum, kColumnsOfSum}}).value(),
      .item_bytes = 4,
      .source = EndOf(*ParseLayout("[-, -]"), axes, std::vector<std::string>{"x"}).value(),
      .destination = EndOf(*ParseLayout("[-, -]"), axes).value()};
  CourseRequest made = RequestOf(sums, {.devices_of_host = 1});
  PutOnGpus(made.request);
  made.sizes = {.array_bytes = 2048, .row_elements = 1};
  return PlanOf(made).value();
}

// Small whole numbers, whose sums are exact in any order.
std::string Matrix(absl::FunctionRef<float(int64_t)> element) {
  std::vector<float> elements;
  for (int64_t i = 0; i < kSumElements; ++i) elements.push_back(element(i));
  std::string bytes(kSumBytes, '\0');
  std::memcpy(bytes.data(), elements.data(), bytes.size());
  return bytes;
}

class GpuCourseTest : public testing::Test {
 protected:
  // `faults` of all processes.
  void Open(const std::string& faults = "") {
    gpus_.options.process.environment.push_back("CROSSMESH_STANDIN_FAULTS=" + faults);
    ASSERT_OK(gpus_.Open());
    executor_ = Executor::Create(gpus_.loop(), {});
    ASSERT_OK_AND_ASSIGN(transport_, InProcessTransport::Create(fabric_, *executor_));
    ASSERT_OK(executor_->Attach(*transport_));
    on_gpus_ = std::make_unique<GpuTaskRunner>(gpus_.loop(), gpus_.devices(), *executor_);
    runner_ = std::make_unique<CountedCourseRunner>(CountedCourseRunner::Ports{
        .loop = gpus_.loop(), .on_gpus = *on_gpus_, .counters = counters_});
    ASSERT_OK_AND_ASSIGN(auto parts, CutParts(plan_, {plan_.tensors().devices()}));
    ASSERT_OK_AND_ASSIGN(
        part_, PreparedPart::Create(std::make_shared<const WorkerPart>(std::move(parts.front()))));
    for (DeviceRank gpu = 0; gpu < kSumGpus; ++gpu) {
      ASSERT_OK_AND_ASSIGN(summands_.emplace_back(), gpus_.MakeArena(NameOf(gpu), kSumBytes));
      ASSERT_OK_AND_ASSIGN(sums_.emplace_back(), gpus_.MakeArena(NameOf(gpu), kSumBytes));
    }
  }
  void TearDown() override {
    gpus_.Stop();
    EXPECT_EQ(gpus_.Violations(), "");
  }

  static std::string NameOf(DeviceRank gpu) { return absl::StrCat("h", gpu, ".0"); }
  TaskSpec SpecOf(uint32_t instance, const CommunicatorKey& communicator) const {
    TaskSpec spec;
    spec.key = {.operation = 1, .epoch = 1, .plan = 1, .instance = instance};
    spec.part = part_;
    for (DeviceRank gpu = 0; gpu < kSumGpus; ++gpu) {
      spec.sources[gpu] = {.tensor = {summands_[gpu]->bytes().data()}};
      spec.destinations[gpu] = {.tensor = {sums_[gpu]->bytes().data()}};
    }
    spec.communicators = {{.key = communicator, .devices = {0, 1, 2}}};
    spec.stall_limit = absl::Seconds(30);
    return spec;
  }
  // What comes of a task; `meanwhile` is called when it was started.
  TaskReports Run(TaskSpec spec, absl::FunctionRef<void()> meanwhile = [] {}) {
    TaskReports reports;
    EXPECT_OK(runner_->Start(std::move(spec), reports));
    meanwhile();
    gpus_.RunUntil([&] { return reports.task.has_value(); });
    return reports;
  }
  void ExpectSums(uint32_t instance, const CommunicatorKey& communicator) {
    const auto summand = [&](DeviceRank gpu, int64_t element) {
      return static_cast<float>((element * 7 + gpu * 13 + instance) % 101 - 50);
    };
    for (DeviceRank gpu = 0; gpu < kSumGpus; ++gpu) {
      StandInGpus::Write(*summands_[gpu], Matrix([&](int64_t i) { return summand(gpu, i); }));
    }
    const TaskReports reports = Run(SpecOf(instance, communicator));
    EXPECT_OK(reports.task->status);
    EXPECT_THAT(reports.devices, AllOf(SizeIs(kSumGpus), Each(Field(&DeviceReport::status, IsOk())),
                                       Each(Field(&DeviceReport::bytes, kSumBytes))));
    const std::string expected =
        Matrix([&](int64_t i) { return summand(0, i) + summand(1, i) + summand(2, i); });
    for (const std::shared_ptr<Arena>& sums : sums_) {
      EXPECT_TRUE(StandInGpus::Read(*sums) == expected);
    }
  }

  const Plan plan_ = PlanOfSums();
  StandInGpus gpus_{{"h0.0", "h1.0", "h2.0"}};
  InProcessFabric fabric_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Executor> executor_;  // has messages of the transport
  std::unique_ptr<GpuTaskRunner> on_gpus_;
  CourseCounters counters_;
  std::unique_ptr<CountedCourseRunner> runner_;
  std::shared_ptr<const PreparedPart> part_;
  std::vector<std::shared_ptr<Arena>> summands_;
  std::vector<std::shared_ptr<Arena>> sums_;
};

TEST_F(GpuCourseTest, SumsAreMadeAsOftenAsIsWantedAndCounted) {
  Open();
  ASSERT_OK_AND_ASSIGN(const CommunicatorKey communicator, gpus_.MakeCommunicator());
  for (uint32_t instance = 0; instance < 3; ++instance) ExpectSums(instance, communicator);
  const Course<Plan>& course = plan_.courses()[0];
  ASSERT_GT(course.instances, 4);
  const CourseCounters& counters = runner_->counters();
  ASSERT_EQ(course.steps.size(), 2);
  EXPECT_EQ(counters.all_steps_moved(), 3 * 2 * course.instances);
  EXPECT_EQ(counters.steps_moved[static_cast<size_t>(StepKind::kReduceScatter)],
            3 * course.instances);
  EXPECT_EQ(counters.steps_moved[static_cast<size_t>(StepKind::kAllGather)], 3 * course.instances);
  // Each reads three summands of its third.
  EXPECT_EQ(counters.reduced_bytes, 3 * kSumGpus * kSumBytes);
  gpus_.RunUntil([&] { return counters.array_bytes == 0; });
  // One after the other.
  int64_t arrays = 0;
  for (const DeviceId& device : plan_.tensors().devices()) {
    arrays += CourseMemory(CourseTables(course), device).bytes();
  }
  EXPECT_GT(arrays, 0);
  EXPECT_EQ(counters.array_bytes_peak, arrays);
}

TEST_F(GpuCourseTest, ALostProcessEndsIt) {
  Open("stall_at=20");
  ASSERT_OK_AND_ASSIGN(const CommunicatorKey communicator, gpus_.MakeCommunicator());
  const TaskReports reports = Run(SpecOf(0, communicator), [&] {
    EXPECT_GT(runner_->counters().array_bytes, 0);
    // It is posted, sent, and sent again with its part by the time of three answers.
    for (int i = 0; i < 3; ++i) EXPECT_OK(gpus_.Call(gpus_["h1.0"], PingRequest()));
    SendSignal(gpus_["h1.0"].process().pid(), SIGKILL);
  });
  EXPECT_THAT(reports.task->status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("device h1.0")));
  EXPECT_THAT(reports.devices,
              AllOf(SizeIs(kSumGpus),
                    Each(Field(&DeviceReport::status, StatusIs(absl::StatusCode::kUnavailable)))));
  EXPECT_EQ(runner_->counters().all_steps_moved(), 0);
  gpus_.RunUntil([&] { return runner_->counters().array_bytes == 0; });
}

TEST_F(GpuCourseTest, ACancelEndsItWithItsCause) {
  Open("stall_at=20");
  ASSERT_OK_AND_ASSIGN(const CommunicatorKey communicator, gpus_.MakeCommunicator());
  const TaskSpec spec = SpecOf(0, communicator);
  const TaskReports reports = Run(spec, [&] {
    for (int i = 0; i < 3; ++i) EXPECT_OK(gpus_.Call(gpus_["h2.0"], PingRequest()));
    runner_->Cancel(spec.key, absl::CancelledError("a client wants it so"));
  });
  EXPECT_THAT(reports.task->status,
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("a client wants it so")));
}

}  // namespace
}  // namespace crossmesh
