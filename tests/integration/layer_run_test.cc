// Layer programs on real executors, computed by rehearsals, which look at every byte that comes in.
// CROSSMESH_SEED and CROSSMESH_CASES choose what is run.

#include "common/plan/course.h"
#include "common/plan/step_kind.h"
#include "common/plan/testing/random_source.h"
#include "common/testing/random_cases.h"
#include "common/wire/worker_part_codec.h"
#include "planner/redistribute/planning/testing/course_requests.h"
#include "tests/integration/pipeline_run_fixture.h"
#include "worker/pipeline/layer_worker_program.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <gmock/gmock.h>

namespace crossmesh {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// A transfer inside the one rank of a random program.
struct RandomTransfer {
  Plan plan;
  int32_t buffers = 1;
  std::vector<std::pair<int32_t, int32_t>> messages;  // ops that give and need them
};

// A plan that moves or reduces by at most one course of one instance. `courses`: surely by one.
Plan RandomTransferPlan(RandomSource& random, bool courses) {
  for (;;) {
    CourseRequest request = RandomCourseRequest(static_cast<uint64_t>(random.Below(1 << 30)), true);
    request.sizes.array_bytes = int64_t{1} << 30;
    absl::StatusOr<Plan> plan = PlanOf(request);
    if (!plan.ok() || (courses && !plan->has_courses())) continue;
    if (plan->has_courses() && (plan->courses().size() != 1 || plan->courses()[0].instances != 1)) {
      continue;
    }
    return *std::move(plan);
  }
}

// Ops in ascending order at both ends, such that memory for a message is free before it is given.
std::vector<std::pair<int32_t, int32_t>> RandomMessages(RandomSource& random, int32_t ops,
                                                        int32_t buffers) {
  std::vector<std::pair<int32_t, int32_t>> messages;
  auto producer = static_cast<int32_t>(random.Below(2));
  int32_t consumer = 0;
  for (;;) {
    consumer = std::max(producer, consumer) + static_cast<int32_t>(random.Between(1, 2));
    if (consumer >= ops) return messages;
    messages.emplace_back(producer, consumer);
    producer += static_cast<int32_t>(random.Between(1, 2));
    if (std::ssize(messages) >= buffers) {
      producer = std::max(producer, messages[messages.size() - buffers].second + 1);
    }
  }
}

struct RandomLayers {
  RandomLayers() = default;
  explicit RandomLayers(RandomSource& random, bool courses = false)
      : ops(static_cast<int32_t>(random.Between(5, 12))) {
    const int64_t count = random.Between(1, 3);
    for (int64_t t = 0; t < count; ++t) {
      const auto buffers = static_cast<int32_t>(random.Between(1, 3));
      transfers.push_back({.plan = RandomTransferPlan(random, courses),
                           .buffers = buffers,
                           .messages = RandomMessages(random, ops, buffers)});
      for (const DeviceId& device : transfers.back().plan.tensors().devices()) {
        devices.insert(device);
      }
    }
  }

  // Each worker has one of its own first.
  std::vector<std::vector<DeviceId>> Deal(RandomSource& random, size_t workers) const {
    std::vector<DeviceId> all(devices.begin(), devices.end());
    random.Shuffle(all);
    std::vector<std::vector<DeviceId>> dealt(workers);
    for (size_t i = 0; i < all.size(); ++i) {
      dealt[i < workers ? i : random.Below(static_cast<int64_t>(workers))].push_back(all[i]);
    }
    return dealt;
  }

  std::vector<v1::LayerProgram> Programs(const std::vector<std::vector<DeviceId>>& dealt) const {
    std::vector<v1::LayerProgram> programs(dealt.size());
    for (v1::LayerProgram& program : programs) {
      v1::LayerProgram::Rank& rank = *program.add_ranks();
      for (int32_t op = 0; op < ops; ++op) {
        rank.add_ops()->set_name(absl::StrCat("layer", op));
        rank.mutable_ops(op)->set_seconds(1e-4);
      }
    }
    for (size_t t = 0; t < transfers.size(); ++t) AddTransfer(t, dealt, programs);
    return programs;
  }

  void AddTransfer(size_t index, const std::vector<std::vector<DeviceId>>& dealt,
                   std::vector<v1::LayerProgram>& programs) const {
    const RandomTransfer& transfer = transfers[index];
    const TensorTable& table = transfer.plan.tensors();
    std::vector<std::vector<DeviceId>> owned(dealt.size());
    for (size_t worker = 0; worker < dealt.size(); ++worker) {
      std::ranges::copy_if(dealt[worker], std::back_inserter(owned[worker]),
                           [&](const auto& d) { return table.FindDevice(d).has_value(); });
    }
    const auto parts = CutParts(transfer.plan, owned);
    ASSERT_OK(parts.status());
    for (size_t worker = 0; worker < dealt.size(); ++worker) {
      if (!(*parts)[worker].moves_bytes()) continue;
      v1::LayerProgram::Transfer& out = *programs[worker].add_transfers();
      out.set_name(absl::StrCat("sum", index));
      out.set_buffers(transfer.buffers);
      out.set_plan(static_cast<uint32_t>(index + 1));
      *out.mutable_part() = ToProto((*parts)[worker]);
      for (size_t t = 0; t < table.group_of_tensor().size(); ++t) out.add_tensors("x");
      for (const auto& [producer, consumer] : transfer.messages) {
        v1::LayerProgram::Message& message = *out.add_messages();
        message.set_producer(producer);
        message.set_consumer(consumer);
      }
    }
  }

  int32_t ops = 0;
  std::vector<RandomTransfer> transfers;
  std::set<DeviceId> devices;
};

class LayerRunTest : public PipelineRunTest {
 protected:
  void StartLayers(const RandomLayers& layers, const std::vector<std::vector<DeviceId>>& dealt,
                   bool checksums, absl::Duration stall_limit = absl::Seconds(20)) {
    std::vector<WorkerProgram> programs;
    for (const v1::LayerProgram& proto : layers.Programs(dealt)) {
      ASSERT_OK_AND_ASSIGN(programs.emplace_back(), FromProto(proto, "test", budget_));
    }
    StartPrograms(std::move(programs), dealt, {.checksums = checksums, .stall_limit = stall_limit});
  }

  // Worker 0's messages to worker 1 have these faults from now on, on a connection of their own.
  void Relink(const FaultPlan& faults) {
    const std::string& from = workers_[0]->transport->address();
    const std::string& to = workers_[1]->transport->address();
    fabric_->SetFaults(from, to, faults);
    fabric_->Cut(from, to);
    for (const auto& worker : workers_) {
      // The loss is told between two tasks.
      for (int i = 0; i < 2; ++i) worker->loop->RunAndWait([] {});
    }
  }

  // Does the first step of any transfer join worker 0 to another?
  bool ExchangesAtFirst(const RandomLayers& layers,
                        const std::vector<std::vector<DeviceId>>& dealt) {
    const absl::StatusOr<WorkerProgram> program =
        FromProto(layers.Programs(dealt).front(), "test", budget_);
    EXPECT_OK(program.status());
    return std::ranges::any_of(program->transfers, [](const WorkerProgram::Transfer& transfer) {
      const auto& first = *transfer.part->prepared->courses().front().front();
      return std::ranges::any_of(first.channels(), [](const PreparedPart::Channel& channel) {
        return channel.remote_end().has_value();
      });
    });
  }

  // That a report names, of what failed.
  static void ExpectPlaces(const Report& report) {
    EXPECT_THAT(report.message(), ContainsRegex("^sum[0-9] (after|before) layer[0-9]+"));
    EXPECT_THAT(report.message(), ContainsRegex("at device h[0-9]+.[0-9]+: step [0-9]+ of "));
  }

  // Whose devices a worker has.
  using Dealt = std::vector<std::vector<DeviceId>>;

  // `test` begins when iteration 0 has begun and worker 1 is needed, whose op never ends; of so
  // many random layers those whose workers exchange something in the first step. Says how many it
  // were.
  int64_t ForEachExchange(int64_t cases,
                          absl::FunctionRef<void(const RandomLayers&, const Dealt&)> test) {
    const uint64_t seed = FromEnvironment("CROSSMESH_SEED", 1);
    int64_t exchanges = 0;
    for (int64_t i = 0; i < cases && !HasFailure(); ++i) {
      SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
      RandomSource random(seed + i);
      const RandomLayers layers(random, /*courses=*/true);
      const Dealt dealt = layers.Deal(random, workers_.size());
      if (!ExchangesAtFirst(layers, dealt)) continue;
      ++exchanges;
      StartLayers(layers, dealt, true, absl::Milliseconds(200));
      if (HasFatalFailure()) break;
      Compute(*workers_[0]);
      BeginIteration(0);
      test(layers, dealt);
    }
    return exchanges;
  }

  void ExpectNextStartWorks(const RandomLayers& layers, const Dealt& dealt, int64_t iteration) {
    ASSERT_NO_FATAL_FAILURE(StartLayers(layers, dealt, true));
    ComputeAll();
    BeginIteration(iteration);
    for (const auto& worker : workers_) EXPECT_EQ(worker->listener.NextReport().code(), 0);
    Stop(HasFailure() ? absl::CancelledError("it hangs") : absl::OkStatus());
  }

  // Of all workers, whose arrays are all given back.
  int64_t ReducedBytes() {
    int64_t reduced = 0;
    for (const auto& worker : workers_) {
      // What has told that it is over goes with the next task, which may be posted after this one.
      worker->loop->RunAndWait([] {});
      worker->loop->RunAndWait([&] {
        reduced += worker->replayer->counters().reduced_bytes;
        EXPECT_EQ(worker->replayer->counters().array_bytes, 0);
      });
    }
    return reduced;
  }
};

TEST_F(LayerRunTest, EveryIterationOfARandomProgramIsComplete) {
  const uint64_t seed = FromEnvironment("CROSSMESH_SEED", 1);
  const int64_t cases = RandomCases(60);
  AddWorkers(3, {.seed = 7, .delay_probability = 0.1, .reorder_channels = true});
  for (int64_t i = 0; i < cases && !HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
    RandomSource random(seed + i);
    const RandomLayers layers(random);
    ASSERT_NO_FATAL_FAILURE(
        StartLayers(layers, layers.Deal(random, workers_.size()), !random.OneIn(3)));
    ComputeAll();
    for (int64_t iteration = 0; iteration < 3; ++iteration) {
      BeginIteration(iteration);
      for (const auto& worker : workers_) {
        const Report report = worker->listener.NextReport();
        EXPECT_EQ(report.code(), 0) << report.ShortDebugString();
        EXPECT_EQ(report.iteration(), iteration);
      }
    }
    Stop(HasFailure() ? absl::CancelledError("it hangs") : absl::OkStatus());
  }
  EXPECT_TRUE(AllMemoryIsBack());
  if (FromEnvironment("CROSSMESH_SEED", 0) == 0) EXPECT_GT(ReducedBytes(), 10'000);
}

// All-reduces of which everything is known: steps of each message, bytes, arrays of each buffer.
TEST_F(LayerRunTest, StepsOfEveryMessageAreCountedByKindWithWhatTheyReduce) {
  constexpr int64_t kBytes = int64_t{64} * 128 * 4;
  const std::vector<Axis> axes = {{"x", 4}};
  CourseRequest sums = RequestOf(
      {.axes = axes,
       .shape = *ParseShape("[64, 128]"),
       .item_bytes = 4,
       .source = EndOf(*ParseLayout("[-, -]"), axes, std::vector<std::string>{"x"}).value(),
       .destination = EndOf(*ParseLayout("[-, -]"), axes).value()},
      {.devices_of_host = 2});
  sums.sizes.array_bytes = int64_t{1} << 30;
  ASSERT_OK_AND_ASSIGN(Plan plan, PlanOf(sums));
  const std::vector<DeviceId> devices = plan.tensors().devices();
  RandomLayers layers;
  layers.ops = 4;
  layers.devices = {devices.begin(), devices.end()};
  layers.transfers.push_back(
      {.plan = std::move(plan), .buffers = 2, .messages = {{0, 1}, {1, 2}, {2, 3}}});
  AddWorkers(2);
  ASSERT_NO_FATAL_FAILURE(
      StartLayers(layers, {{devices[0], devices[1]}, {devices[2], devices[3]}}, true));
  ComputeAll();
  for (int64_t iteration = 0; iteration < 2; ++iteration) {
    BeginIteration(iteration);
    for (const auto& worker : workers_) EXPECT_EQ(worker->listener.NextReport().code(), 0);
  }
  Stop(absl::OkStatus());
  EXPECT_TRUE(AllMemoryIsBack());
  constexpr int64_t kMessages = 2 * 3;
  for (const auto& worker : workers_) {
    // What has told that it is over goes right after that.
    worker->loop->RunAndWait([] {});
    worker->loop->RunAndWait([&] {
      const CourseCounters& counters = worker->replayer->counters();
      EXPECT_EQ(counters.all_steps_moved(), 2 * kMessages);
      EXPECT_EQ(counters.steps_moved[static_cast<size_t>(StepKind::kReduceScatter)], kMessages);
      EXPECT_EQ(counters.steps_moved[static_cast<size_t>(StepKind::kAllGather)], kMessages);
      EXPECT_EQ(counters.reduced_bytes, kMessages * 2 * kBytes);
      EXPECT_EQ(counters.array_bytes_peak, 2 * 2 * (kBytes + kBytes / 4));
      EXPECT_EQ(counters.array_bytes, 0);
    });
  }
}

// Buffers come back, and the next start works.
TEST_F(LayerRunTest, ACutLinkFailsTheIterationWithOpTransferAndDevice) {
  AddWorkers(2);
  const int64_t cases = RandomCases(10);
  const int64_t cut = ForEachExchange(cases, [&](const RandomLayers& layers, const Dealt& dealt) {
    fabric_->Cut(workers_[0]->transport->address(), workers_[1]->transport->address());
    const Report report = workers_[0]->listener.NextReport();
    EXPECT_EQ(report.code(), static_cast<int>(absl::StatusCode::kUnavailable));
    // By whichever end of the message is here.
    ExpectPlaces(report);
    EXPECT_THAT(report.message(), HasSubstr("w1"));
    Stop(absl::CancelledError("iteration 0 failed"));
    workers_[1]->listener.NextReport();
    ASSERT_NO_FATAL_FAILURE(ExpectNextStartWorks(layers, dealt, 1));
  });
  EXPECT_TRUE(AllMemoryIsBack());
  ReducedBytes();
  if (FromEnvironment("CROSSMESH_SEED", 0) == 0) EXPECT_GT(cut, cases / 3);
}

// Which the device's step finds, that tells what it expected; buffers come back, and the next start
// works.
TEST_F(LayerRunTest, AWrongChecksumFailsTheIterationWithOpTransferStepAndDevice) {
  AddWorkers(2);
  const uint64_t seed = FromEnvironment("CROSSMESH_SEED", 1);
  // A flipped bit of what else is sent is found otherwise, and some cases send hardly anything.
  const int64_t cases = RandomCases(100);
  int64_t found = 0;
  for (int64_t i = 0; i < cases && found < 4 && !HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
    RandomSource random(seed + i);
    const RandomLayers layers(random, /*courses=*/true);
    const auto dealt = layers.Deal(random, workers_.size());
    // Only what worker 1 receives is spoiled, so it is the one that finds it.
    Relink({.seed = seed + i, .corrupt_probability = 0.05});
    ASSERT_NO_FATAL_FAILURE(StartLayers(layers, dealt, true));
    ComputeAll();
    int64_t iteration = 0;
    Report report;
    for (; iteration < 10 && report.code() == 0; ++iteration) {
      BeginIteration(iteration);
      report = workers_[1]->listener.NextReport();
      if (report.code() == 0) EXPECT_EQ(workers_[0]->listener.NextReport().code(), 0);
    }
    if (report.code() == static_cast<int>(absl::StatusCode::kDataLoss)) {
      ++found;
      ExpectPlaces(report);
      EXPECT_THAT(report.message(),
                  ContainsRegex("expected checksum [0-9a-f]+ of its root, found [0-9a-f]+"));
    }
    Stop(absl::CancelledError("it has been looked at"));
    if (report.code() != 0) workers_[0]->listener.NextReport();
    Relink({});
    ASSERT_NO_FATAL_FAILURE(ExpectNextStartWorks(layers, dealt, iteration));
  }
  EXPECT_TRUE(AllMemoryIsBack());
  ReducedBytes();
  if (FromEnvironment("CROSSMESH_SEED", 0) == 0) EXPECT_GT(found, 0);
}

// Not gone, but answering nothing: as a process that is stopped.
TEST_F(LayerRunTest, AWorkerThatIsStoppedInAStepIsBlamedAndTheNextStartWorks) {
  AddWorkers(2);
  const int64_t cases = RandomCases(8);
  const int64_t stopped =
      ForEachExchange(cases, [&](const RandomLayers& layers, const Dealt& dealt) {
        std::latch go_on(1);
        workers_[1]->loop->Post([&go_on] { go_on.wait(); });
        const Report report = workers_[0]->listener.NextReport();
        go_on.count_down();
        EXPECT_EQ(report.code(), static_cast<int>(absl::StatusCode::kUnavailable));
        EXPECT_THAT(report.message(), ContainsRegex("^sum[0-9] (after|before) layer[0-9]+"));
        EXPECT_THAT(report.message(),
                    ContainsRegex("step [0-9]+ of [0-9]+: worker w1 is lost: stalled"));
        Stop(absl::CancelledError("iteration 0 failed"));
        workers_[1]->listener.NextReport();
        ASSERT_NO_FATAL_FAILURE(ExpectNextStartWorks(layers, dealt, 1));
      });
  EXPECT_TRUE(AllMemoryIsBack());
  ReducedBytes();
  if (FromEnvironment("CROSSMESH_SEED", 0) == 0) EXPECT_GT(stopped, cases / 3);
}

}  // namespace
}  // namespace crossmesh
