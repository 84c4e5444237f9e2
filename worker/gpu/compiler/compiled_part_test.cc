#include "worker/gpu/compiler/compiled_part.h"

#include "common/base/check.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/tables.h"
#include "common/plan/worker_part.h"
#include "common/testing/status_matchers.h"
#include "worker/gpu/compiler/testing/compiled_part_text.h"
#include "worker/gpu/compiler/testing/compiled_parts.h"
#include "worker/gpu/compiler/testing/small_plans.h"

#include <memory>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// That a message with one leaf takes of staging.
constexpr int64_t kPlaceBytes = 65536 + 256;

Plan::Spec Chain(int64_t leaves) { return ThroughTwoHops(leaves * Plan::kLeafBytes); }

CompiledParts CompiledPartsOf(Plan::Spec spec, const CompiledPart::Options& options) {
  auto compiled_parts = CompiledPartsOf(Made(std::move(spec)), options);
  CHECK_OK(compiled_parts);
  return *std::move(compiled_parts);
}

absl::Status StatusOf(Plan::Spec spec, const CompiledPart::Options& options) {
  return CompiledPartsOf(Made(std::move(spec)), options).status();
}

// Three chunks through two hops, and each device has staging for two.
class ThreeChunksTest : public testing::Test {
 protected:
  const CompiledParts compiled_parts_ =
      CompiledPartsOf(Chain(3), {.staging_bytes = 2 * kPlaceBytes, .steps_ahead = 1});
};

TEST_F(ThreeChunksTest, TheRootPacksAndSends) {
  EXPECT_EQ(ToText(*compiled_parts_[0]), R"(a.0, 0 leaves, peers b.0
step 0
  pack class 0 [0, 65536) to 0
  send 65544 at 0 to b.0
step 1
  pack class 0 [65536, 131072) to 65792
  send 65544 at 65792 to b.0
step 2
  pack after wire 0
  pack class 0 [131072, 196608) to 0
  send 65544 at 0 to b.0
)");
}

TEST_F(ThreeChunksTest, ATransferTellsHowMuchOfItIsTheChunk) {
  const CompiledPart& root = *compiled_parts_[0];
  EXPECT_EQ(root.sends(root.steps()[0])[0].bytes, 65536 + 8);
  EXPECT_EQ(root.sends(root.steps()[0])[0].chunk_bytes, 65536);
}

// It takes a place again before it has rested, since there is no other.
TEST_F(ThreeChunksTest, TheDeviceBetweenSendsOnFromWhereItReceived) {
  EXPECT_EQ(ToText(*compiled_parts_[1]), R"(b.0, 3 leaves, peers a.0 b.1
step 0
  receive 65544 at 0 from a.0
  unpack class 0 [0, 65536) at 0, leaf 0
step 1
  send 65544 at 0 to b.1
  receive 65544 at 65792 from a.0
  unpack class 0 [65536, 131072) at 65792, leaf 1
step 2
  wire after unpack 0
  send 65544 at 65792 to b.1
  receive 65544 at 0 from a.0
  unpack class 0 [131072, 196608) at 0, leaf 2
step 3
  send 65544 at 0 to b.1
)");
}

TEST_F(ThreeChunksTest, TheLastReceives) {
  EXPECT_EQ(ToText(*compiled_parts_[2]), R"(b.1, 3 leaves, peers b.0
step 1
  receive 65544 at 0 from b.0
  unpack class 0 [0, 65536) at 0, leaf 0
step 2
  receive 65544 at 65792 from b.0
  unpack class 0 [65536, 131072) at 65792, leaf 1
step 3
  wire after unpack 0
  receive 65544 at 0 from b.0
  unpack class 0 [131072, 196608) at 0, leaf 2
)");
}

TEST(CompiledPartTest, PlacesRestForTheStepsAheadIfThereIsStaging) {
  const auto offsets = [](const CompiledPart::Options& options) {
    std::vector<int64_t> places;
    const CompiledParts compiled_parts = CompiledPartsOf(Chain(6), options);
    for (const CompiledPart::Step& step : compiled_parts[0]->steps()) {
      places.push_back(compiled_parts[0]->packs(step)[0].staging_offset / kPlaceBytes);
    }
    return places;
  };
  EXPECT_THAT(offsets({.staging_bytes = 1 << 20, .steps_ahead = 0}), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(offsets({.staging_bytes = 1 << 20, .steps_ahead = 2}), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(offsets({.staging_bytes = 2 * kPlaceBytes, .steps_ahead = 2}),
              ElementsAre(0, 1, 0, 1, 0, 1));
}

TEST(CompiledPartTest, WithoutChecksumsAMessageIsItsBytes) {
  const CompiledParts compiled_parts =
      CompiledPartsOf(Chain(2), {.staging_bytes = 4 * Plan::kLeafBytes, .checksums = false});
  EXPECT_EQ(compiled_parts[1]->leaves(), 0);
  for (const CompiledPart::Step& step : compiled_parts[1]->steps()) {
    for (const auto& send : compiled_parts[1]->sends(step)) EXPECT_EQ(send.bytes, Plan::kLeafBytes);
  }
}

TEST(CompiledPartTest, WhatGoesToSeveralPeersIsPackedOnceAndKept) {
  const CompiledParts compiled_parts = CompiledPartsOf(
      ToTwoDevices(Plan::kLeafBytes,
                   {{.from = 0, .to = 1, .period = 0}, {.from = 0, .to = 2, .period = 5}}),
      {.staging_bytes = kPlaceBytes});
  EXPECT_EQ(ToText(*compiled_parts[0]), R"(a.0, 0 leaves, peers b.0 b.1
step 0
  pack class 0 [0, 65536) to 0
  send 65544 at 0 to b.0
step 5
  send 65544 at 0 to b.1
)");
}

TEST(CompiledPartTest, CopiesWithoutTransfersAreOneRangeOfEachClass) {
  const CompiledParts compiled_parts = CompiledPartsOf(OnOneDevice(3 * Plan::kLeafBytes + 5), {});
  EXPECT_EQ(ToText(*compiled_parts[0]), R"(a.0, 0 leaves, peers
step 0
  copy class 0 [0, 196613)
)");
  const CompiledParts large = CompiledPartsOf(OnOneDevice(int64_t{1} << 30), {});
  ASSERT_THAT(large[0]->steps(), SizeIs(1));
  EXPECT_THAT(large[0]->copies(large[0]->steps()[0]), SizeIs(1));
}

TEST(CompiledPartTest, CopiesAreDealtOutToTheStepsAsCoarselyAsALaunchNeeds) {
  constexpr int64_t kMebibyte = int64_t{1} << 20;
  const auto dealt = [](int64_t steps, int64_t copied_bytes) {
    const CompiledParts compiled_parts =
        CompiledPartsOf(ExchangeBesideCopies(steps, copied_bytes), {.staging_bytes = 4 << 20});
    std::vector<int64_t> mebibytes;
    for (const CompiledPart::Step& step : compiled_parts[0]->steps()) {
      EXPECT_LE(step.copies.size(), 1);
      for (const CompiledPart::Copy& copy : compiled_parts[0]->copies(step)) {
        mebibytes.push_back((copy.end - copy.begin) / kMebibyte);
      }
    }
    return mebibytes;
  };
  EXPECT_THAT(dealt(4, 256 * kMebibyte), ElementsAre(64, 64, 64, 64));
  EXPECT_THAT(dealt(8, 80 * kMebibyte), ElementsAre(32, 32, 16));
}

TEST(CompiledPartTest, NothingIsCopiedWhereBothSidesAreOneMemory) {
  Plan::Spec spec = OnOneDevice(5);
  spec.binding = BindingMode::kInPlace;
  spec.shared_storage = true;
  EXPECT_THAT(CompiledPartsOf(std::move(spec), {})[0]->steps(), IsEmpty());
}

TEST(CompiledPartTest, NothingIsDoneForTensorsWithoutBytes) {
  const CompiledParts compiled_parts = CompiledPartsOf(OnOneDevice(0), {});
  EXPECT_THAT(compiled_parts[0]->steps(), IsEmpty());
  EXPECT_THAT(compiled_parts[0]->peers(), IsEmpty());
}

TEST(CompiledPartTest, AllRanksAgreeUnlessPlanOrChecksumsDiffer) {
  const CompiledPart::Options options{.staging_bytes = 1 << 20};
  const CompiledParts compiled_parts = CompiledPartsOf(Chain(3), options);
  EXPECT_EQ(compiled_parts[1]->agreement(), compiled_parts[0]->agreement());
  EXPECT_EQ(compiled_parts[2]->agreement(), compiled_parts[0]->agreement());
  CompiledPart::Options other = options;
  other.staging_bytes *= 2;
  other.steps_ahead = 0;
  EXPECT_EQ(CompiledPartsOf(Chain(3), other)[0]->agreement(), compiled_parts[0]->agreement());
  other.checksums = false;
  EXPECT_NE(CompiledPartsOf(Chain(3), other)[0]->agreement(), compiled_parts[0]->agreement());
  EXPECT_NE(CompiledPartsOf(Chain(4), options)[0]->agreement(), compiled_parts[0]->agreement());
}

TEST(CompiledPartTest, StagingThatIsTooSmallIsRefusedWithBothSizes) {
  EXPECT_THAT(StatusOf(Chain(3), {.staging_bytes = kPlaceBytes}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("staging of b.0"),
                             HasSubstr("65792 bytes in one piece beside 65792 bytes in use"),
                             HasSubstr("found 65792 bytes in all"))));
  EXPECT_THAT(StatusOf(Chain(3), {}), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(CompiledPartTest, APartOfSeveralDevicesIsRefused) {
  ASSERT_OK_AND_ASSIGN(std::vector<WorkerPart> parts,
                       CutParts(Made(Chain(3)), {{{"a", 0}}, {{"b", 0}, {"b", 1}}, {}}));
  for (const size_t worker : {1, 2}) {
    ASSERT_OK_AND_ASSIGN(
        auto part,
        PreparedPart::Create(std::make_shared<const WorkerPart>(std::move(parts[worker]))));
    EXPECT_THAT(CompiledPart::Create(part, {.staging_bytes = 1 << 20}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected one, found")));
  }
}

TEST(CompiledPartTest, ScalesOfWhatIsReadAreComputedFirst) {
  const CompiledParts compiled_parts = CompiledPartsOf(QuantizedOnOneDevice(), {});
  EXPECT_EQ(ToText(*compiled_parts[0]), R"(a.0, 0 leaves, peers
scale tensor 0
step 0
  copy class 0 [0, 60000)
  copy class 1 [0, 24)
)");
}

// Of a tensor that both have, a.0 sends the elements and a.1 the scales; the other one only a.1
// has.
TEST(CompiledPartTest, ScalesAreComputedWhereElementsOrScalesAreRead) {
  std::vector<TensorText> texts(2, {.shape = "[128, 128]",
                                    .source_mesh = "x=2 on a.0-1",
                                    .source = "[-, -]",
                                    .destination_mesh = "x=1 on b.0",
                                    .destination = "[-, -]",
                                    .type = DataType::kBF16,
                                    .sent_as = DataType::kF8E4M3});
  texts[1].source_mesh = "x=1 on a.1";
  const auto tensors = std::make_shared<const TensorTable>(TableOf(texts));
  ASSERT_OK_AND_ASSIGN(Slicing slicing, Slicing::Create(*tensors));
  Plan::Spec spec = {.tensors = tensors,
                     .slicing = std::make_shared<const Slicing>(std::move(slicing))};
  // Elements of both, scales of both.
  const std::vector<DeviceRank> roots = {0, 1, 1, 1};
  for (ClassIndex i = 0; i < std::ssize(roots); ++i) {
    spec.relays.push_back({.slice_class = i,
                           .root = roots[i],
                           .end = spec.slicing->classes()[i].bytes,
                           .first_hop = i,
                           .hop_count = 1,
                           .due = {.begin = 0, .end = DueTime::kParts}});
    spec.hops.push_back({.from = roots[i], .to = 2});
  }
  PlaceHopsInPlanOrder(spec);
  const CompiledParts compiled_parts = CompiledPartsOf(std::move(spec), {.staging_bytes = 1 << 20});
  EXPECT_THAT(compiled_parts[0]->scaled(), ElementsAre(0));
  EXPECT_THAT(compiled_parts[1]->scaled(), ElementsAre(0, 1));
  EXPECT_THAT(compiled_parts[2]->scaled(), IsEmpty());
}

TEST(CompiledPartTest, NegativeOptionsAreRefused) {
  EXPECT_THAT(StatusOf(Chain(1), {.staging_bytes = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("staging")));
  EXPECT_THAT(StatusOf(Chain(1), {.staging_bytes = 1 << 20, .steps_ahead = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("steps ahead")));
}

// Nothing in the proof of a plan looks at periods: messages need none of them.
TEST(CompiledPartTest, ARelayThatGoesOnBeforeItHasComeIsRefused) {
  Plan::Spec spec = Chain(1);
  spec.hops[1].period = 0;
  EXPECT_THAT(StatusOf(std::move(spec), {.staging_bytes = 1 << 20}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("relay 0 at b.0"), HasSubstr("to b.1 after period 0"),
                             HasSubstr("found period 0"))));
}

// Two chunks to two devices that are one broadcast group with their root.
class BroadcastTest : public testing::Test {
 protected:
  static Plan::Spec SpecOfGroup() {
    Plan::Spec spec = Chain(2);
    spec.broadcast_groups.Add(std::vector<DeviceRank>{0, 1, 2});
    return spec;
  }

  const CompiledParts compiled_parts_ =
      CompiledPartsOf(SpecOfGroup(), {.staging_bytes = kPlaceBytes});
};

TEST_F(BroadcastTest, TheRootPacksAndBroadcasts) {
  EXPECT_EQ(ToText(*compiled_parts_[0]), R"(a.0, 0 leaves, peers b.0 b.1
step 0
  pack class 0 [0, 65536) to 0
  broadcast 65544 at 0 from a.0
step 1
  pack after wire 0
  pack class 0 [65536, 131072) to 0
  broadcast 65544 at 0 from a.0
)");
}

TEST_F(BroadcastTest, AllOthersHaveEachChunkInTheStepOfTheRoot) {
  for (const DeviceRank device : {1, 2}) {
    EXPECT_EQ(ToText(*compiled_parts_[device]).substr(3),
              absl::StrCat(R"(, 2 leaves, peers a.0 b.)", 2 - device, R"(
step 0
  broadcast 65544 at 0 from a.0
  unpack class 0 [0, 65536) at 0, leaf 0
step 1
  wire after unpack 0
  broadcast 65544 at 0 from a.0
  unpack class 0 [65536, 131072) at 0, leaf 1
)"));
  }
}

TEST_F(BroadcastTest, CompiledPartsOfGroupsSaySoAndAgreeWithNoOthers) {
  for (const auto& compiled : compiled_parts_) EXPECT_TRUE(compiled->is_of_group());
  const CompiledParts others = CompiledPartsOf(Chain(2), {.staging_bytes = 2 * kPlaceBytes});
  EXPECT_FALSE(others[0]->is_of_group());
  EXPECT_NE(compiled_parts_[0]->agreement(), others[0]->agreement());
}

}  // namespace
}  // namespace crossmesh
