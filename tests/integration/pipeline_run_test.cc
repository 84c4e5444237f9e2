// Planned pipelines as programs on real executors, computed by rehearsals, which look at every byte
// that comes in. CROSSMESH_SEED and CROSSMESH_CASES choose what is run.

#include "common/plan/testing/random_source.h"
#include "common/testing/random_cases.h"
#include "planner/pipeline/planning/testing/planned_pipelines.h"
#include "tests/integration/pipeline_run_fixture.h"
#include "worker/executor/testing/random_case.h"

#include <string>
#include <vector>

namespace crossmesh {
namespace {

void AddRandomEdge(RandomSource& random, v1::PipelineSpec& spec, int32_t from, int32_t to) {
  static const std::vector<std::string> kLayouts = {"[x, -]", "[-, x]", "[-, -]"};
  v1::PipelineEdge& edge = *spec.add_edges();
  edge.set_from(from);
  edge.set_to(to);
  const int64_t tensors = random.Between(1, 2);
  for (int64_t t = 0; t < tensors; ++t) {
    v1::PipelineTensor& tensor =
        AddTensor(edge, absl::StrCat("t", t), 12, 6 * random.Between(1, 4000));
    tensor.set_source_layout(random.Pick(kLayouts));
    tensor.set_destination_layout(random.Pick(kLayouts));
  }
}

// Ranks of one to three devices, together at least three, hosts n0, n1, ...; times of some tenth of
// a millisecond.
v1::PipelineSpec RandomSpec(RandomSource& random) {
  v1::PipelineSpec spec;
  const auto ranks = static_cast<int32_t>(random.Between(2, 4));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const int64_t devices = random.Between(rank == 0 ? 2 : 1, 3);
    const auto seconds = [&] { return static_cast<double>(random.Between(1, 4)) * 1e-4; };
    AddRank(spec, devices, {seconds(), seconds(), seconds()});
  }
  for (int32_t from = 0; from < ranks; ++from) {
    for (int32_t to = from + 1; to < ranks; ++to) {
      if (to == from + 1 || random.OneIn(3)) AddRandomEdge(random, spec, from, to);
    }
  }
  v1::PipelineMicrobatches& many = *spec.add_microbatches();
  many.set_count(static_cast<int32_t>(random.Between(1, 6)));
  many.set_samples(12);
  if (random.OneIn(4)) {
    spec.set_sequence_parts(static_cast<int32_t>(random.Between(2, 3)));
    many.set_count(many.count() * spec.sequence_parts());
  } else if (random.OneIn(2)) {
    v1::PipelineMicrobatches& last = *spec.add_microbatches();
    last.set_count(1);
    last.set_samples(6);
  }
  return spec;
}

v1::PipelineChoice RandomChoice(RandomSource& random, const v1::PipelineSpec& spec) {
  static const std::vector<std::string> kSchedules = {"1f1b", "eager_1f1b", "gpipe", "zb_h1"};
  v1::PipelineChoice choice;
  choice.set_schedule(spec.sequence_parts() > 1 ? "sequence_split" : random.Pick(kSchedules));
  choice.set_delay_weight_gradients(random.OneIn(2));
  if (random.OneIn(4)) choice.set_transfer_model("blocking");
  return choice;
}

// At least one for each worker.
std::vector<std::vector<DeviceId>> DealDevicesOf(const PlannedPipeline& planned, size_t workers,
                                                 RandomSource& random) {
  std::vector<DeviceId> all;
  for (const auto& rank : planned.description.ranks) {
    all.insert(all.end(), rank.mesh->devices().begin(), rank.mesh->devices().end());
  }
  random.Shuffle(all);
  std::vector<std::vector<DeviceId>> devices(workers);
  for (size_t i = 0; i < all.size(); ++i) {
    devices[i < workers ? i : random.Below(static_cast<int64_t>(workers))].push_back(all[i]);
  }
  return devices;
}

void ExpectComplete(const ProgramListener::Report& report, int64_t iteration) {
  EXPECT_EQ(report.code(), 0) << report.message();
  EXPECT_EQ(report.iteration(), iteration);
  for (const auto& rank : report.ops()) {
    for (int op = 0; op < rank.begin_ns_size(); ++op) {
      EXPECT_GT(rank.begin_ns(op), 0);
      EXPECT_GE(rank.end_ns(op), rank.begin_ns(op));
    }
  }
}

TEST_F(PipelineRunTest, EveryIterationOfARandomPipelineIsComplete) {
  const uint64_t seed = FromEnvironment("CROSSMESH_SEED", 1);
  const int64_t cases = RandomCases(60);
  AddWorkers(3, {.seed = 7, .delay_probability = 0.1, .reorder_channels = true});
  for (int64_t i = 0; i < cases && !HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
    RandomSource random(seed + i);
    const v1::PipelineSpec spec = RandomSpec(random);
    ASSERT_OK_AND_ASSIGN(const PlannedPointer planned, PlanOf(spec, RandomChoice(random, spec)));
    const auto devices = DealDevicesOf(*planned, workers_.size(), random);
    ASSERT_NO_FATAL_FAILURE(StartPrograms(*planned, devices, !random.OneIn(3)));
    ComputeAll();
    for (int64_t iteration = 0; iteration < 3; ++iteration) {
      BeginIteration(iteration);
      for (const auto& worker : workers_) {
        ExpectComplete(worker->listener.NextReport(), iteration);
      }
    }
    Stop(HasFailure() ? absl::CancelledError("it hangs") : absl::OkStatus());
    for (const auto& worker : workers_) {
      if (HasFailure()) ADD_FAILURE() << worker->listener.NextReport().ShortDebugString();
    }
  }
}

}  // namespace
}  // namespace crossmesh
