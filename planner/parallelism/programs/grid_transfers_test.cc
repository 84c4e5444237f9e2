// The transfers of a grid's program that no cost model prices: of norms, losses, vectors and
// stages.

#include "planner/parallelism/programs/grid_program.h"
#include "planner/pipeline/schedules/window_order.h"

#include <algorithm>
#include <cstdint>

#include <absl/strings/string_view.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kModelWidth = 64;
constexpr int64_t kModelVocabulary = 128;
constexpr int64_t kModelSequence = 8;

GridProgramRequest MovesRequest(absl::string_view grid, absl::string_view devices) {
  GridProgramRequest request{
      .model = PlainTransformer("small", 4, kModelWidth, 8),
      .training = {.batch = 16, .sequence = kModelSequence, .keep_gathered = true},
      .device = *FindDevicePreset("a100")};
  request.model.vocabulary = kModelVocabulary;
  request.stages = *StagesOfGrid(*ParseGrid(grid), *ParseDevices(devices), {.layers = 4});
  return request;
}

LayerProgram::Transfer MovedAs(const LayerProgram& program, absl::string_view name) {
  const auto found = std::ranges::find(program.transfers, name, &LayerProgram::Transfer::name);
  EXPECT_NE(found, program.transfers.end()) << name;
  return found == program.transfers.end() ? LayerProgram::Transfer() : *found;
}

int64_t LengthOfMoved(const LayerProgram::Transfer& transfer, size_t dimension) {
  return transfer.tensors.at(0).tensor.shape[dimension];
}

// Of a row: two sums of a norm, and of its gradient; the greatest logit; the sum of exponents and
// the logit of the target. In 32 bits, whatever the activations have.
TEST(GridTransfersTest, NormsAndLossesAreNumbersOfRows) {
  const LayerProgram program = *MakeGridProgram(MovesRequest("c=2,r=2", "a.0-3"));
  const struct {
    const char* name;
    int64_t numbers;
    ReductionKind reduction;
    const char* axis;
  } cases[] = {{"qkv.norm_sum", 2, ReductionKind::kSum, "c"},
               {"mlp_in.norm_gradient_sum", 2, ReductionKind::kSum, "c"},
               {"logits.norm_sum", 2, ReductionKind::kSum, "c"},
               {"loss.max", 1, ReductionKind::kMax, "r"},
               {"loss.sum", 2, ReductionKind::kSum, "r"}};
  for (const auto& [name, numbers, reduction, axis] : cases) {
    const LayerProgram::Transfer transfer = MovedAs(program, name);
    EXPECT_EQ(LengthOfMoved(transfer, 0), 16 * kModelSequence) << name;
    EXPECT_EQ(LengthOfMoved(transfer, 1), numbers) << name;
    EXPECT_EQ(transfer.tensors[0].tensor.type, DataType::kF32) << name;
    EXPECT_EQ(transfer.reduction, reduction) << name;
    EXPECT_THAT(transfer.partial, ElementsAre(axis)) << name;
  }
}

// Devices whose rows are the same have the same gradients of vectors: they are no summands. Those
// of scattered activations have other rows.
TEST(GridTransfersTest, GradientsOfVectorsAreSummedWhereRowsDiffer) {
  GridProgramRequest request = MovesRequest("c=2,r=2,z=2,data=2", "a.0-15");
  const LayerProgram copies = *MakeGridProgram(request);
  EXPECT_THAT(MovedAs(copies, "vectors_of_c").partial, ElementsAre("data", "z"));
  EXPECT_THAT(MovedAs(copies, "vectors_of_r").partial, ElementsAre("data", "z"));
  request.training.activations = ActivationForm::kScattered;
  const LayerProgram scattered = *MakeGridProgram(request);
  EXPECT_THAT(MovedAs(scattered, "vectors_of_c").partial, ElementsAre("data", "z", "r"));
  EXPECT_THAT(MovedAs(scattered, "vectors_of_r").partial, ElementsAre("data", "z", "c"));
}

// Both stages have two layers; the first one has the embeddings of tokens and places, and the last
// one the norm before the logits.
TEST(GridTransfersTest, EmbeddingsAreOfTheFirstStage) {
  GridProgramRequest request = MovesRequest("r=2,pipeline=2,data=2", "a.0-7");
  request.microbatches = 2;
  request.schedule = *MakeOneForwardOneBackward(2, 2);
  const LayerProgram program = *MakeGridProgram(request);
  EXPECT_EQ(LengthOfMoved(MovedAs(program, "stage0.vectors_of_c"), 0) -
                LengthOfMoved(MovedAs(program, "stage1.vectors_of_c"), 0),
            (kModelVocabulary + kModelSequence) * kModelWidth - 2 * kModelWidth);
  EXPECT_EQ(LengthOfMoved(MovedAs(program, "stage0.vectors_of_r"), 0),
            LengthOfMoved(MovedAs(program, "stage1.vectors_of_r"), 0));
}

// So that a stage gives a message while the next one has not used the one before; of a batch that
// is cut in two, twice as many.
TEST(GridTransfersTest, BetweenStagesTwoMicrobatchesHaveMemory) {
  GridProgramRequest request = MovesRequest("r=2,pipeline=2", "a.0-3");
  request.microbatches = 4;
  request.schedule = *MakeOneForwardOneBackward(2, 4);
  for (const bool halves : {false, true}) {
    request.training.overlaps.split_batch = halves;
    const LayerProgram program = *MakeGridProgram(request);
    for (const char* name : {"stage0.activations", "stage1.gradients"}) {
      const LayerProgram::Transfer transfer = MovedAs(program, name);
      EXPECT_EQ(transfer.buffers, halves ? 4 : 2) << name;
      EXPECT_EQ(transfer.messages.size(), halves ? 8U : 4U) << name;
      EXPECT_EQ(LengthOfMoved(transfer, 0), 16 * kModelSequence / 4 / (halves ? 2 : 1)) << name;
    }
  }
}

// A gradient that is taken at once needs no other memory.
TEST(GridTransfersTest, ScattersThatAreNotDeferredHaveOneBuffer) {
  GridProgramRequest request = MovesRequest("z=2", "a.0-1");
  request.training.pending_scatters = 3;
  EXPECT_EQ(MovedAs(*MakeGridProgram(request), "qkv.scatter").buffers, 3);
  request.training.overlaps.weight_gradients = false;
  EXPECT_EQ(MovedAs(*MakeGridProgram(request), "qkv.scatter").buffers, 1);
}

}  // namespace
}  // namespace crossmesh
