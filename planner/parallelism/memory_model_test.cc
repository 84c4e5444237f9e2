#include "planner/parallelism/memory_model.h"

#include "planner/parallelism/exchange_bytes.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

Training ShortSequences(int64_t batch) { return {.batch = batch, .sequence = 512}; }

MemoryTerms TermsOf(const Transformer& model, const Training& training, const char* grid,
                    int64_t microbatch = 1) {
  return MemoryOf(model, training, ShapeOf(model, training, *ParseGrid(grid), microbatch));
}

Transformer EightLayers() {
  Transformer model = PlainTransformer("", 8, 1024, 16);
  model.vocabulary = 4096;
  return model;
}

TEST(MemoryModelTest, StateIsEighteenBytesOfEveryParameterOfTheDevice) {
  const auto parameters = static_cast<double>(Parameters(EightLayers()));
  EXPECT_EQ(TermsOf(EightLayers(), ShortSequences(8), "c=1").state(), 18 * parameters);
  EXPECT_EQ(TermsOf(EightLayers(), ShortSequences(8), "c=2,r=2,z=2").state(), 18 * parameters / 8);
  EXPECT_EQ(TermsOf(EightLayers(), ShortSequences(8), "data=8").state(), 18 * parameters);
  // The first stage has its layers, and the embedding.
  EXPECT_EQ(TermsOf(EightLayers(), ShortSequences(8), "pipeline=2").state(),
            18 * (4 * 12.0 * 1024 * 1024 + 4096.0 * 1024));
}

TEST(MemoryModelTest, ZeroCutsWhatItsStagesSay) {
  for (int stage = 0; stage <= 3; ++stage) {
    Training training = ShortSequences(8);
    training.zero = stage;
    const ZeroShape shape{
        .parameters = static_cast<double>(Parameters(EightLayers())), .data = 8, .stage = stage};
    EXPECT_NEAR(TermsOf(EightLayers(), training, "data=8").state(), ZeroStateBytes(shape), 1)
        << stage;
    // Parts of sequences and groups of experts have copies as well.
    EXPECT_NEAR(TermsOf(EightLayers(), training, "context=2,data=4").state(), ZeroStateBytes(shape),
                1)
        << stage;
  }
}

TEST(MemoryModelTest, ExpertsAreCutByTheirAxis) {
  Transformer model = EightLayers();
  model.experts = 8;
  model.experts_per_token = 2;
  const double experts = 8 * 8.0 * 8 * 1024 * 1024;
  const double dense = 8 * 4.0 * 1024 * 1024 + 4096.0 * 1024;
  EXPECT_EQ(TermsOf(model, ShortSequences(8), "c=1").state(), 18 * (dense + experts));
  EXPECT_EQ(TermsOf(model, ShortSequences(8), "expert=4").state(), 18 * (dense + experts / 4));
}

// A message is the whole and the device's shard. Programs are held to this by
// GridProgramMemoryTest.
TEST(MemoryModelTest, WhatZAddsIsMemoryForGathersAndPendingScatters) {
  Training training = ShortSequences(8);
  const MemoryTerms none = TermsOf(EightLayers(), training, "r=2");
  EXPECT_EQ(none.gathered, 0);
  EXPECT_EQ(none.pending_scatters, 0);
  const double block = 12.0 * 1024 * 1024 / 2 * 2;
  const double logits = 4096.0 * 1024 / 2 * 2;
  // Two sequences in microbatches of one.
  MemoryTerms terms = TermsOf(EightLayers(), training, "r=2,z=4");
  EXPECT_EQ(terms.gathered, 2 * (block + logits) * 1.25);
  EXPECT_EQ(terms.pending_scatters, (block + logits) * 1.25);
  training.pending_scatters = 5;
  EXPECT_EQ(TermsOf(EightLayers(), training, "r=2,z=4").pending_scatters,
            (5 * block + 2 * logits) * 1.25);
  training.overlaps = kNoOverlaps;
  terms = TermsOf(EightLayers(), training, "r=2,z=4");
  EXPECT_EQ(terms.gathered, 2 * (block + logits) * 1.25);
  EXPECT_EQ(terms.pending_scatters, (block + logits) * 1.25);
  training.cached_layers = 3;
  terms = TermsOf(EightLayers(), training, "r=2,z=4");
  EXPECT_EQ(terms.cached, 3 * block);
  EXPECT_EQ(terms.gathered, (2 * block + logits) * 1.25);
  training.cached_layers = 300;
  terms = TermsOf(EightLayers(), training, "r=2,z=4");
  EXPECT_EQ(terms.cached, 8 * block);
  EXPECT_EQ(terms.gathered, (block + logits) * 1.25);
  // Of ZeRO there are no programs: the largest matrix, and the one ahead.
  training = ShortSequences(8);
  training.zero = 3;
  EXPECT_EQ(TermsOf(EightLayers(), training, "data=8").gathered, 2 * 2 * 1024 * 4096.0);
  training.overlaps = kNoOverlaps;
  EXPECT_EQ(TermsOf(EightLayers(), training, "data=8").gathered, 2 * 1024 * 4096.0);
}

TEST(MemoryModelTest, ActivationsShrinkAsTheyAreCutAndComputedAgain) {
  Transformer model = EightLayers();
  model.vocabulary = 0;
  Training training = ShortSequences(8);
  const double rows = 512;
  const double h = 1024;
  EXPECT_EQ(TermsOf(model, training, "c=1").activations, 8 * rows * h * 34);
  EXPECT_EQ(TermsOf(model, training, "c=2").activations, 8 * rows * h * (5 + 24));
  EXPECT_EQ(TermsOf(model, training, "r=4").activations, 8 * rows * h * (10 + 6));
  EXPECT_EQ(TermsOf(model, training, "context=4").activations, 8 * rows / 4 * h * 34);
  training.flash_attention = false;
  EXPECT_EQ(TermsOf(model, training, "r=4").activations,
            8 * rows * (h * (10 + 6) + 5.0 * 16 * 512 / 4));
  training.recompute = Recompute::kSelective;
  EXPECT_EQ(TermsOf(model, training, "r=4").activations, 8 * rows * h * (10 + 6));
  training.activations = ActivationForm::kScattered;
  EXPECT_EQ(TermsOf(model, training, "c=2,r=4", 2).activations, 8 * 2 * rows * h * 34 / 8);
  training.keep_gathered = true;
  EXPECT_EQ(TermsOf(model, training, "r=4").activations,
            8 * rows * h * (6.0 / 4 + 14.0 / 4 + 4 + 10.0 / 4));
  training.recompute = Recompute::kFull;
  const MemoryTerms full = TermsOf(model, training, "r=4");
  EXPECT_EQ(full.activations, 8 * rows * h * 2 / 4);
  EXPECT_GT(full.live_block, 0);
}

TEST(MemoryModelTest, StagesHoldWhatTheirScheduleHasInFlight) {
  Transformer model = EightLayers();
  model.vocabulary = 0;
  Training training = ShortSequences(8);
  const double once = TermsOf(model, training, "c=1").activations;
  EXPECT_EQ(TermsOf(model, training, "pipeline=4").activations, once);
  training.schedule = GridSchedule::kGpipe;
  EXPECT_EQ(TermsOf(model, training, "pipeline=4").activations, 2 * once);
  training.schedule = GridSchedule::kEager;
  EXPECT_EQ(TermsOf(model, training, "pipeline=4").activations, once * 7 / 4);
  training.schedule = GridSchedule::kInterleaved;
  training.chunks = 2;
  EXPECT_EQ(TermsOf(model, training, "pipeline=4").activations, once * 5.5 / 4);
}

TEST(MemoryModelTest, TheLastStageCountsWhereItsLogitsAreLarger) {
  Transformer model = EightLayers();
  model.vocabulary = 4'000'000;
  model.tied = false;
  const MemoryTerms terms = TermsOf(model, ShortSequences(8), "pipeline=2");
  EXPECT_EQ(terms.logits, 6 * 512 * 4e6);
  // One microbatch.
  EXPECT_EQ(terms.activations, 4 * 512 * 1024.0 * 34);
  EXPECT_EQ(TermsOf(EightLayers(), ShortSequences(8), "pipeline=2").logits, 0);
}

TEST(MemoryModelTest, TermsAddUpToTheTotal) {
  MemoryTerms terms;
  double value = 1;
  for (const MemoryTermField& field : kMemoryTermFields) {
    terms.*field.term = value;
    value *= 2;
  }
  EXPECT_EQ(terms.total(), std::ldexp(1, kMemoryTermFields.size()) - 1);
}

}  // namespace
}  // namespace crossmesh
