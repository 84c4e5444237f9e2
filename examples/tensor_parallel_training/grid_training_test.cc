#include "common/base/check.h"
#include "common/mesh/mesh.h"
#include "common/testing/status_matchers.h"
#include "examples/tensor_parallel_training/model.h"
#include "examples/tensor_parallel_training/small_training.h"
#include "examples/tensor_parallel_training/testing/program_walk.h"
#include "examples/tensor_parallel_training/training_phase.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh::grid_training {
namespace {

using ::testing::HasSubstr;

// Trainings on up to 8 devices, as ParsePhase reads them.
constexpr const char* kRuns[] = {
    "c=1",
    "r=8",
    "c=8",
    "z=8",
    "data=8",
    "c=2,r=2,z=2",
    "r=2,z=2,data=2",
    "c=2,r=4",
    // The cube, and Megatron's sequence parallelism with FSDP.
    "c=2,r=2,z=2 scattered",
    "r=4,z=2 scattered",
    // Vectors on the diagonal: of the cube, of a face alone, of copies, of a line.
    "c=2,r=2,z=2 scattered diagonal microbatches=2",
    "c=2,r=2 scattered diagonal",
    "c=2,r=2,data=2 scattered diagonal",
    "z=4,data=2 scattered diagonal",
    "c=2,r=2|z=4 scattered diagonal microbatches=2",
    "c=4,data=2 scattered",
    // Devices with half a sequence.
    "r=8 scattered microbatches=4",
    // Everything that changes the arithmetic, or its order.
    "c=2,r=2,z=2 microbatches=2",
    "c=2,r=2,z=2 overlaps=all",
    "c=2,r=2,z=2 scattered microbatches=2 overlaps=all",
    "r=2,z=2|c=2,r=2 microbatches=4",
    "r=2,z=2|c=2,data=2 scattered microbatches=4 overlaps=none",
    "c=4|z=2,data=2 microbatches=4",
    // Layers with grids of their own: attention and MLP; first and last layers, and logits; copies
    // of samples, all of one, or none; in halves, in stages.
    "r=2,z=4+c=2,r=2,z=2@mlp",
    "r=8+z=8@mlp",
    "z=8+c=8@mlp+r=8@logits microbatches=2",
    "c=2,r=4+r=2,z=2,data=2@1 overlaps=all",
    "c=2,r=2,z=2+z=4,data=2@1.attention scattered microbatches=2",
    "r=4,z=2+c=2,r=4@mlp+r=2,z=2,data=2@logits scattered overlaps=all",
    "r=2,z=2+c=4@mlp|c=2,r=2+z=4@1.mlp microbatches=4",
    // Ranks with several stages each.
    "r=2,z=2|c=2,data=2 chunks=2 microbatches=4",
    "c=2,r=2|z=4 scattered diagonal chunks=2 microbatches=2",
    "r=2|z=2|c=2 chunks=2 microbatches=4 overlaps=all",
    "r=2,z=2+c=4@mlp|c=2,r=2 chunks=2 microbatches=2",
};

// Small, with a layer for each stage.
TrainingSettings SettingsOf(const TrainingPhase& phase) {
  return SmallTraining(std::max<int64_t>(2, std::ssize(phase.grids) * phase.chunks));
}

GridProgramRequest RequestOf(const TrainingPhase& phase) {
  const absl::StatusOr<GridProgramRequest> request =
      RequestOf(phase, SettingsOf(phase), *ParseDevices("host.0-7"));
  CHECK_OK(request);
  return *request;
}

ProgramWalk WalkOf(const TrainingPhase& run) {
  absl::StatusOr<ProgramWalk> walk = ProgramWalk::Create(RequestOf(run), SmallTraining().optimizer);
  CHECK_OK(walk);
  return *std::move(walk);
}

std::vector<double> LossesOf(ProgramWalk& walk, int steps) {
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const absl::StatusOr<double> loss = walk.Step();
    EXPECT_OK(loss);
    losses.push_back(loss.value_or(std::nan("")));
  }
  return losses;
}

double GreatestDifference(const std::vector<double>& some, const std::vector<double>& others) {
  double greatest = 0;
  for (size_t i = 0; i < some.size(); ++i) {
    greatest = std::max(greatest, std::abs(some[i] - others[i]));
  }
  return greatest;
}

// Of each tensor the greatest difference of an element, over the greatest element.
template <typename Number>
double GreatestDifference(const TensorsOf<Number>& some, const TensorsOf<double>& exact,
                          std::string& where) {
  double greatest = 0;
  for (const auto& [name, values] : exact) {
    const MatrixOf<double> difference = some.find(name)->second.template cast<double>() - values;
    const double relative = difference.cwiseAbs().maxCoeff() / values.cwiseAbs().maxCoeff();
    if (relative > greatest) where = name;
    greatest = std::max(greatest, relative);
  }
  return greatest;
}

constexpr int kSteps = 6;

// The training in one process, and how far rounding to float takes it from the exact one.
struct Alone {
  explicit Alone(const TrainingSettings& settings) {
    const Tensors parameters = InitialParameters(settings);
    LossAndGradients(settings, CastTensors<double>(parameters), exact_gradients);
    Tensors gradients;
    LossAndGradients(settings, parameters, gradients);
    std::string ignored;
    gradient_rounding = GreatestDifference(gradients, exact_gradients, ignored);
    exact_losses = TrainAlone<double>(settings, kSteps);
    loss_rounding = GreatestDifference(TrainAlone<float>(settings, kSteps), exact_losses);
  }

  TensorsOf<double> exact_gradients;
  std::vector<double> exact_losses;
  double gradient_rounding = 0;
  double loss_rounding = 0;
};

// A grid rounds as often as one process does, but other sums: so it is about as far from the exact
// training, in double precision, as that process is. It may be several times as far.
constexpr double kSeveral = 4;

class GridTrainingTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Grids, GridTrainingTest, ::testing::ValuesIn(kRuns));

// Tensor by tensor, since errors of gradients may hide in losses.
TEST_P(GridTrainingTest, GradientsAndLossesAreTheSingleProcesss) {
  static std::map<int64_t, Alone> by_layers;
  const TrainingPhase phase = *ParsePhase(GetParam());
  const TrainingSettings settings = SettingsOf(phase);
  const Alone& alone = by_layers.try_emplace(settings.model.layers, settings).first->second;
  ProgramWalk walk = WalkOf(phase);
  std::vector<double> losses = LossesOf(walk, 1);
  const absl::StatusOr<Tensors> gradients = walk.Gradients();
  ASSERT_OK(gradients);
  std::string where;
  const double gradient_error = GreatestDifference(*gradients, alone.exact_gradients, where);
  EXPECT_LT(gradient_error, kSeveral * alone.gradient_rounding) << where;
  for (const double loss : LossesOf(walk, kSteps - 1)) losses.push_back(loss);
  const double loss_error = GreatestDifference(losses, alone.exact_losses);
  EXPECT_LT(loss_error, kSeveral * alone.loss_rounding);
}

// The same sums in the same order, whatever runs beside what.
class GridOrderTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Grids, GridOrderTest,
                         ::testing::Values("c=2,r=2,z=2", "c=2,r=2,z=2 scattered",
                                           "c=2,r=2,z=2 scattered diagonal", "r=2,z=2|z=2,data=2",
                                           "r=2,z=4+c=2,r=2,z=2@mlp", "r=2,z=2|z=2,data=2 chunks=2",
                                           "r=4,z=2+z=4,data=2@1 scattered"));

TEST_P(GridOrderTest, OverlapsWindowsAndCachesChangeNoBit) {
  TrainingPhase run = *ParsePhase(GetParam());
  run.microbatches = 2;
  run.overlaps = kNoOverlaps;
  run.pending_scatters = 1;
  const auto train = [&run] {
    ProgramWalk walk = WalkOf(run);
    const std::vector<double> losses = LossesOf(walk, 2);
    const absl::StatusOr<Tensors> parameters = walk.Parameters();
    EXPECT_OK(parameters);
    return std::pair(losses, parameters.value_or(Tensors()));
  };
  const auto synchronous = train();
  const std::vector<std::function<void(TrainingPhase&)>> changes = {
      [](TrainingPhase& of) { of.overlaps.input_gradients = true; },
      [](TrainingPhase& of) { of.overlaps.weight_gradients = true; },
      [](TrainingPhase& of) { of.pending_scatters = 3; },
      [](TrainingPhase& of) { of.overlaps.weight_gathers = true; },
      [](TrainingPhase& of) { of.overlaps.backward_gathers = true; },
      [](TrainingPhase& of) { of.cached_layers = 1; },
      [](TrainingPhase& of) { of.overlaps = {}, of.cached_layers = 2; },
  };
  // Each beside all before it.
  for (size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("change ", i));
    changes[i](run);
    const auto overlapped = train();
    EXPECT_EQ(overlapped.first, synchronous.first);
    for (const auto& [name, values] : synchronous.second) {
      EXPECT_TRUE(overlapped.second.at(name) == values) << name;
    }
  }
}

// Where parameters lie changes no bit of what is computed with them: until gradients are followed,
// whose sums are of another order, the loss is the same.
TEST(DiagonalVectorsTest, TheFirstLossHasTheBitsOfCopies) {
  for (const char* phase : {"c=2,r=2,z=2 scattered", "c=2,r=2,data=2 scattered microbatches=2"}) {
    ProgramWalk copies = WalkOf(*ParsePhase(phase));
    ProgramWalk diagonal = WalkOf(*ParsePhase(absl::StrCat(phase, " diagonal")));
    EXPECT_EQ(LossesOf(diagonal, 1), LossesOf(copies, 1)) << phase;
  }
}

// With moments, which go along; also to the diagonal and from there.
void ExpectToGoOn(const char* from, const char* to) {
  const TrainingSettings settings = SmallAdamTraining();
  const auto walk_of = [&settings](const char* phase) {
    return *ProgramWalk::Create(RequestOf(*ParsePhase(phase)), settings.optimizer);
  };
  ProgramWalk first = walk_of(from);
  std::vector<double> losses = LossesOf(first, kSteps / 2);
  const absl::StatusOr<Tensors> state = first.State();
  ASSERT_OK(state);
  ProgramWalk second = walk_of(to);
  second.SetState(*state, kSteps / 2);
  for (const double loss : LossesOf(second, kSteps - kSteps / 2)) losses.push_back(loss);
  const std::vector<double> exact = TrainAlone<double>(settings, kSteps);
  const double rounding = GreatestDifference(TrainAlone<float>(settings, kSteps), exact);
  EXPECT_LT(GreatestDifference(losses, exact), kSeveral * rounding);
}

TEST(GridChangeTest, AnotherGridGoesOnWithTheStateOfTheFirst) {
  for (const auto& [from, to] :
       {std::pair("r=2,z=4", "c=2,r=2,z=2 scattered"),
        std::pair("r=2,z=4", "c=2,r=2,z=2 scattered diagonal"),
        std::pair("c=2,r=2,z=2 scattered diagonal", "r=2,z=2,data=2 scattered")}) {
    SCOPED_TRACE(absl::StrCat(from, " to ", to));
    ExpectToGoOn(from, to);
  }
}

TEST(ProgramWalkTest, HasGradientsWhenAStepIsDone) {
  ProgramWalk walk = WalkOf(*ParsePhase("r=2"));
  EXPECT_THAT(walk.Gradients(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("tokens: expected a step that is done")));
  ASSERT_OK(walk.Step());
  EXPECT_OK(walk.Gradients());
}

// Every sum of the program is needed: a step without it goes wrong, and is seen to.
TEST(ProgramWalkTest, NoSumCanBeLeftOut) {
  for (const char* phase :
       {"c=2,r=2,z=2", "c=2,r=2,z=2 scattered", "c=2,r=2,z=2 scattered diagonal"}) {
    const GridProgramRequest request = RequestOf(*ParsePhase(phase));
    const LayerProgram whole = *MakeGridProgram(request);
    int sums = 0;
    for (size_t i = 0; i < whole.transfers.size(); ++i) {
      if (whole.transfers[i].partial.empty()) continue;
      LayerProgram program = whole;
      program.transfers[i].partial.clear();
      ProgramWalk walk(std::move(program), request, SmallTraining().optimizer);
      EXPECT_THAT(walk.Step(),
                  StatusIs(absl::StatusCode::kInternal, HasSubstr(whole.transfers[i].name)));
      ++sums;
    }
    // Of each matrix the output's, the input's gradient's and the weights' gradient's; of normal
    // ones the norm's two; two of the loss; two of vectors; and with those on the diagonal, one of
    // embeddings.
    EXPECT_EQ(sums, 3 * 5 + 2 * 3 + 2 + 2 + (absl::StrContains(phase, "diagonal") ? 1 : 0));
  }
}

}  // namespace
}  // namespace crossmesh::grid_training
