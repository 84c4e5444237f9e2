// What workers allocate while a program runs: nothing, once all of its buffers have been used.

#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/mesh/device.h"
#include "common/mesh/topology.h"
#include "common/testing/allocations/count_allocations.h"
#include "controller/dispatch/layer_programs.h"
#include "planner/layers/planned_layers.h"
#include "planner/parallelism/device_profile.h"
#include "planner/parallelism/grid.h"
#include "planner/parallelism/programs/grid_program.h"
#include "planner/parallelism/training.h"
#include "planner/parallelism/transformer.h"
#include "planner/pipeline/schedules/interleaved.h"
#include "planner/pipeline/schedules/window_order.h"
#include "tests/integration/pipeline_run_fixture.h"
#include "worker/memory/arena.h"
#include "worker/pipeline/layer_worker_program.h"
#include "worker/pipeline/running_program.h"
#include "worker/transport/socket/socket_transport.h"
#include "worker/transport/striped/striped_transport.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Hears of a program, and keeps nothing that takes memory.
class IterationCounter final : public ProgramObserver {
 public:
  explicit IterationCounter(ProgramObserver& next) : next_(next) {}

  void OnReady(const absl::Status& status) override { next_.OnReady(status); }
  void OnReport(const ProgramListener::Report& report) override {
    if (report.code() != 0) return next_.OnReport(report);
    MutexLock lock(mutex_);
    ++complete_;
    changed_.Signal();
  }
  void OnStopped() override { next_.OnStopped(); }

  // False: they do not come.
  bool WaitFor(int64_t iterations) {
    MutexLock lock(mutex_);
    while (complete_ < iterations) {
      if (changed_.WaitFor(mutex_, absl::Seconds(30))) return false;
    }
    return true;
  }

 private:
  ProgramObserver& next_;
  Mutex mutex_;
  CondVar changed_;
  int64_t complete_ ABSL_GUARDED_BY(mutex_) = 0;
};

enum class Kind : uint8_t { kFabric, kTcp, kSharedMemory, kTwoNics };

StripedTransport::MakeNic SocketNic(bool shared_memory) {
  return [shared_memory](TransportSink& sink) {
    return SocketTransport::Create(sink, {.interface = "lo", .shared_memory = shared_memory});
  };
}

// Eight devices, in turns at two workers.
std::vector<DeviceId> DevicesInTurns() {
  std::vector<DeviceId> devices;
  for (int32_t i = 0; i < 8; ++i) {
    devices.push_back({.host = i % 2 == 0 ? "a" : "b", .index = i / 2});
  }
  return devices;
}

GridProgramRequest SmallRequest() {
  GridProgramRequest request{.model = PlainTransformer("small", 4, 128, 4),
                             .training = {.batch = 16, .sequence = 32, .keep_gathered = true},
                             .microbatches = 4,
                             .device = *FindDevicePreset("a100")};
  request.model.vocabulary = 128;
  return request;
}

using Planned = absl::StatusOr<std::shared_ptr<const PlannedLayers>>;

Planned PlanOf(const GridProgramRequest& request) {
  ASSIGN_OR_RETURN(LayerProgram program, MakeGridProgram(request));
  return PlanLayers(std::move(program), Topology());
}

// Two stages on two workers, each a grid of its own: sums, gathers and scatters inside both
// workers and between them, in several layers and microbatches.
Planned PlanTwoStages() {
  GridProgramRequest request = SmallRequest();
  ASSIGN_OR_RETURN(const Grid grid, ParseGrid("r=2,z=2,pipeline=2"));
  ASSIGN_OR_RETURN(request.stages,
                   StagesOfGrid(grid, DevicesInTurns(), {.layers = request.model.layers}));
  ASSIGN_OR_RETURN(request.schedule, MakeEagerOneForwardOneBackward(2, request.microbatches));
  return PlanOf(request);
}

// The same on ranks that have two stages each.
Planned PlanInterleavedStages() {
  GridProgramRequest request = SmallRequest();
  ASSIGN_OR_RETURN(const Grid grid, ParseGrid("r=2,z=2,pipeline=2"));
  ASSIGN_OR_RETURN(request.stages, StagesOfGrid(grid, DevicesInTurns(),
                                                {.layers = request.model.layers, .of_rank = 2}));
  ASSIGN_OR_RETURN(
      request.schedule,
      MakeInterleaved({.ranks = 2, .chunks = 2, .microbatches = request.microbatches}));
  return PlanOf(request);
}

// One stage, whose MLPs are on another grid, with joints between the two.
Planned PlanGridsOfLayers() {
  GridProgramRequest request = SmallRequest();
  request.model.layers = 2;
  request.microbatches = 2;
  ASSIGN_OR_RETURN(const LayerGrids grids, ParseLayerGrids("r=2,z=4+c=2,z=4@mlp"));
  ASSIGN_OR_RETURN(const Grid of_mlps, ParseGrid("c=2,z=4"));
  const std::vector<Grid> all = {grids.grid, of_mlps};
  ASSIGN_OR_RETURN(Mesh mesh, MeshOfGrids(all, DevicesInTurns()));
  request.stages.push_back({.grid = grids.grid,
                            .mesh = std::make_shared<const Mesh>(std::move(mesh)),
                            .layers = request.model.layers,
                            .others = grids.others});
  return PlanOf(request);
}

// Two stages, each with a grid of its own: what one gives the other lies otherwise there.
Planned PlanStagesWithGridsOfTheirOwn() {
  GridProgramRequest request = SmallRequest();
  const std::vector<DeviceId> devices = DevicesInTurns();
  for (const char* text : {"r=2,z=2", "c=2,data=2"}) {
    GridStage& stage = request.stages.emplace_back(
        GridStage{.grid = *ParseGrid(text), .layers = request.model.layers / 2});
    const auto own = std::span(devices).subspan(4 * (request.stages.size() - 1), 4);
    ASSIGN_OR_RETURN(Mesh mesh, MeshOfGrid(stage.grid, own));
    stage.mesh = std::make_shared<const Mesh>(std::move(mesh));
  }
  ASSIGN_OR_RETURN(request.schedule, MakeEagerOneForwardOneBackward(2, request.microbatches));
  return PlanOf(request);
}

// The cube: scattered activations, vectors on the diagonal.
Planned PlanCube() {
  GridProgramRequest request = SmallRequest();
  request.model.layers = 2;
  request.microbatches = 2;
  request.training.activations = ActivationForm::kScattered;
  request.training.vectors = VectorForm::kDiagonal;
  ASSIGN_OR_RETURN(const Grid grid, ParseGrid("c=2,r=2,z=2"));
  ASSIGN_OR_RETURN(request.stages,
                   StagesOfGrid(grid, DevicesInTurns(), {.layers = request.model.layers}));
  return PlanOf(request);
}

struct AllocationCase {
  std::string name;
  Kind kind = Kind::kFabric;
  Planned (*plan)() = PlanTwoStages;
};

class ProgramAllocationTest : public PipelineRunTest,
                              public testing::WithParamInterface<AllocationCase> {
 protected:
  void AddCountedWorkers(size_t count) {
    switch (GetParam().kind) {
      case Kind::kFabric:
        AddWorkers(count);
        break;
      case Kind::kTcp:
      case Kind::kSharedMemory:
        AddWorkers(count, SocketNic(GetParam().kind == Kind::kSharedMemory));
        break;
      case Kind::kTwoNics: {
        const std::vector nics(2, SocketNic(false));
        AddWorkers(count,
                   [&](TransportSink& sink) { return StripedTransport::Create(sink, nics); });
        break;
      }
    }
    for (const auto& worker : workers_) {
      counters_.push_back(std::make_unique<IterationCounter>(worker->listener));
      worker->observer = counters_.back().get();
    }
  }

  // Lent for as long as the test lasts.
  absl::StatusOr<std::shared_ptr<Arena>> MakeArena(TestWorker& worker, ByteCount bytes) override {
    ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena, Arena::Create("test", bytes));
    worker.loop->RunAndWait(
        [&] { worker.transport->Lend({.bytes = arena->bytes(), .fd = arena->fd()}); });
    arenas_.push_back(arena);
    return arena;
  }

  void Start(const PlannedLayers& planned) {
    const std::vector<std::vector<DeviceId>> devices = {{{"a", 0}, {"b", 1}, {"a", 2}, {"b", 3}},
                                                        {{"b", 0}, {"a", 1}, {"b", 2}, {"a", 3}}};
    ASSERT_OK_AND_ASSIGN(const auto planned_programs, MakeLayerPrograms(planned, devices));
    std::vector<WorkerProgram> programs;
    for (const PlannedLayerProgram& program : planned_programs) {
      ASSERT_OK_AND_ASSIGN(programs.emplace_back(), FromProto(program.message, "test", budget_));
    }
    // The rounds in which stalls are looked for allocate: there is none while this lasts.
    StartPrograms(std::move(programs), devices, {.stall_limit = absl::Hours(1)});
  }

  // Without matchers, which allocate. False: one is not complete.
  bool RunIterations(int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      absl::Status begun;
      for (const auto& worker : workers_) {
        worker->loop->RunAndWait(
            [&] { begun.Update(worker->program->BeginIteration(next_iteration_)); });
      }
      ++next_iteration_;
      const auto is_complete = [&](const auto& counter) {
        return counter->WaitFor(next_iteration_);
      };
      if (!begun.ok() || !std::ranges::all_of(counters_, is_complete)) return false;
    }
    return true;
  }

  int64_t StepsMoved() {
    int64_t moved = 0;
    for (const auto& worker : workers_) {
      worker->loop->RunAndWait([&] { moved += worker->replayer->counters().all_steps_moved(); });
    }
    return moved;
  }

  int64_t next_iteration_ = 0;
  std::vector<std::unique_ptr<IterationCounter>> counters_;
  std::vector<std::shared_ptr<Arena>> arenas_;
};

INSTANTIATE_TEST_SUITE_P(
    All, ProgramAllocationTest,
    testing::Values(AllocationCase{"Fabric"}, AllocationCase{"Tcp", Kind::kTcp},
                    AllocationCase{"SharedMemory", Kind::kSharedMemory},
                    AllocationCase{"TwoNics", Kind::kTwoNics},
                    AllocationCase{"InterleavedFabric", Kind::kFabric, PlanInterleavedStages},
                    AllocationCase{"InterleavedTcp", Kind::kTcp, PlanInterleavedStages},
                    AllocationCase{"GridsOfLayersFabric", Kind::kFabric, PlanGridsOfLayers},
                    AllocationCase{"OwnGridsFabric", Kind::kFabric, PlanStagesWithGridsOfTheirOwn},
                    AllocationCase{"OwnGridsTcp", Kind::kTcp, PlanStagesWithGridsOfTheirOwn},
                    AllocationCase{"CubeFabric", Kind::kFabric, PlanCube},
                    AllocationCase{"CubeTcp", Kind::kTcp, PlanCube}),
    [](const auto& info) { return info.param.name; });

TEST_P(ProgramAllocationTest, NothingIsAllocatedAfterTheFirstIterations) {
  AddCountedWorkers(2);
  ASSERT_OK_AND_ASSIGN(const auto planned, GetParam().plan());
  ASSERT_NO_FATAL_FAILURE(Start(*planned));
  ComputeAll();
  ASSERT_TRUE(RunIterations(2));
  // Queues of loops and connections keep their memory, and so does what messages under way need,
  // but how many there are at once is a matter of times: any five iterations without an allocation
  // show that no message needs one.
  constexpr int kIterations = 5;
  constexpr int kTries = 50;
  int64_t allocations = 1;
  int tries = 0;
  for (; tries < kTries && allocations > 0 && !HasFailure(); ++tries) {
    const int64_t moved = StepsMoved();
    allocations = CountAllocationsOfAllThreads([&] { EXPECT_TRUE(RunIterations(kIterations)); });
    EXPECT_GT(StepsMoved() - moved, 100 * kIterations);
  }
  EXPECT_EQ(allocations, 0);
  RecordProperty("tries", tries);
  Stop(HasFailure() ? absl::CancelledError("it hangs") : absl::OkStatus());
}

}  // namespace
}  // namespace crossmesh
