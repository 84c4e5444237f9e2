// What a proof says word for word, which of several faults it names, and its limits exactly.

#include "common/base/check.h"
#include "common/plan/proof.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

Plan::Spec ExactSpecOf(const TensorText& tensor) {
  auto tensors = std::make_shared<const TensorTable>(TableOf({tensor}));
  auto slicing = Slicing::Create(*tensors);
  CHECK_OK(slicing);
  return {.tensors = std::move(tensors),
          .slicing = std::make_shared<const Slicing>(*std::move(slicing))};
}

absl::StatusOr<Proof> ExactProofOf(Plan::Spec spec, const ProofLimits& limits = {}) {
  auto plan = Plan::Create(std::move(spec));
  CHECK_OK(plan);
  return Prove(*plan, limits);
}

void ExpectInternalError(Plan::Spec spec, const std::string& message) {
  EXPECT_THAT(ExactProofOf(std::move(spec)), StatusIs(absl::StatusCode::kInternal, message));
}

// Ranks: a.0 0, a.1 1, b.0 2, b.1 3. 64 bytes of class 0 go 0>2>3, as many of class 1 go 1>3>2.
Plan::Spec ExactChains() {
  Plan::Spec spec = ExactSpecOf(TensorOf("[8, 4]: x=2 on a.0-1 [x, -] -> x=2 on b.0-1 [-, -]"));
  spec.relays = {
      {.slice_class = 0, .root = 0, .begin = 0, .end = 64, .first_hop = 0, .hop_count = 2},
      {.slice_class = 1, .root = 1, .begin = 0, .end = 64, .first_hop = 2, .hop_count = 2}};
  spec.hops = {
      {.from = 0, .to = 2}, {.from = 2, .to = 3}, {.from = 1, .to = 3}, {.from = 3, .to = 2}};
  return spec;
}

TEST(ProofExactTest, OfTwoCutsInsideElementsTheFirstIsNamed) {
  Plan::Spec spec = ExactChains();
  spec.relays[0].begin = 2;
  spec.relays[0].end = 30;
  ExpectInternalError(spec,
                      "relay 0 of class 0, bytes [2, 30): expected cut between elements, found cut "
                      "inside one, at byte 2");
}

TEST(ProofExactTest, APlaceIsBelowTheHopsOfItsOwnChannel) {
  // The first hop of a relay, and the last one: beyond each of them is another channel's place.
  Plan::Spec spec = ExactChains();
  spec.hops[2].place = 1;
  ExpectInternalError(
      spec,
      "channel a.1>b.1, relay 1 of class 1, bytes [0, 64): expected places below its 1 "
      "hops, found place 1");
  spec = ExactChains();
  spec.hops[3].place = 1;
  ExpectInternalError(
      spec,
      "channel b.1>b.0, relay 1 of class 1, bytes [0, 64): expected places below its 1 "
      "hops, found place 1");
}

TEST(ProofExactTest, ARootWaitsForNoEarlierRelayThatCameToIt) {
  // Ranks: a.0 0, a.1 1, b.0 2, b.1 3. The first relay ends where the second one begins, and
  // follows it from b.0 to b.1.
  Plan::Spec spec = ExactSpecOf(TensorOf("[8]: x=2 on a.0-1 [x] -> x=3 on a.1,b.0-1 [-]"));
  spec.relays = {
      {.slice_class = 0, .root = 0, .begin = 0, .end = 16, .first_hop = 0, .hop_count = 3},
      {.slice_class = 1, .root = 1, .begin = 0, .end = 16, .first_hop = 3, .hop_count = 2}};
  spec.hops = {{.from = 0, .to = 2},
               {.from = 2, .to = 3, .place = 1},
               {.from = 3, .to = 1},
               {.from = 1, .to = 2},
               {.from = 2, .to = 3}};
  spec.copies = {{.slice_class = 1, .device = 1}};
  EXPECT_OK(ExactProofOf(spec));
}

TEST(ProofExactTest, ADeviceMayFeedSeveralInAnyOrderOfRelays) {
  // Two halves of one class, the second one first in every channel.
  Plan::Spec spec = ExactSpecOf(TensorOf("[8]: x=1 on a.0 [-] -> x=3 on b.0-2 [-]"));
  spec.relays = {{.begin = 0, .end = 16, .first_hop = 0, .hop_count = 3},
                 {.begin = 16, .end = 32, .first_hop = 3, .hop_count = 3}};
  spec.hops = {{.from = 0, .to = 1, .place = 1},
               {.from = 1, .to = 2, .place = 1},
               {.from = 1, .to = 3, .place = 1},
               {.from = 0, .to = 1},
               {.from = 1, .to = 2},
               {.from = 1, .to = 3}};
  EXPECT_OK(ExactProofOf(spec));
}

TEST(ProofExactTest, ACircleThroughTheFirstChannelIsFound) {
  // Ranks: b.0-3 0 to 3, z.0 4. One half goes 4>0>1>2>3, the other 4>2>3>0>1: in 0>1, the first of
  // all channels, as in 2>3 each waits for the other.
  Plan::Spec spec = ExactSpecOf(TensorOf("[8]: x=1 on z.0 [-] -> x=4 on b.0-3 [-]"));
  spec.relays = {{.root = 4, .begin = 0, .end = 16, .first_hop = 0, .hop_count = 4},
                 {.root = 4, .begin = 16, .end = 32, .first_hop = 4, .hop_count = 4}};
  spec.hops = {{.from = 4, .to = 0}, {.from = 0, .to = 1, .place = 1},
               {.from = 1, .to = 2}, {.from = 2, .to = 3},
               {.from = 4, .to = 2}, {.from = 2, .to = 3, .place = 1},
               {.from = 3, .to = 0}, {.from = 0, .to = 1}};
  ExpectInternalError(
      spec,
      "channel b.0>b.1, relay 0 of class 0, bytes [0, 16): expected an order in which "
      "no hop waits for itself, found a circle of hops through place 1");
}

TEST(ProofExactTest, ACircleThroughTheLastChannelIsFound) {
  // Ranks: a.0 0, b.0-3 1 to 4. One half goes 0>1>2>4>3, the other 0>4>3>1>2: in 4>3, the last of
  // all channels, as in 1>2 each waits for the other.
  Plan::Spec spec = ExactSpecOf(TensorOf("[8]: x=1 on a.0 [-] -> x=4 on b.0-3 [-]"));
  spec.relays = {{.begin = 0, .end = 16, .first_hop = 0, .hop_count = 4},
                 {.begin = 16, .end = 32, .first_hop = 4, .hop_count = 4}};
  spec.hops = {{.from = 0, .to = 1}, {.from = 1, .to = 2, .place = 1},
               {.from = 2, .to = 4}, {.from = 4, .to = 3},
               {.from = 0, .to = 4}, {.from = 4, .to = 3, .place = 1},
               {.from = 3, .to = 1}, {.from = 1, .to = 2}};
  ExpectInternalError(
      spec,
      "channel b.0>b.1, relay 0 of class 0, bytes [0, 16): expected an order in which "
      "no hop waits for itself, found a circle of hops through place 1");
}

TEST(ProofExactTest, ACircleIsFoundWhereOnlyTheFirstHopWaitsForALaterOne) {
  // Ranks: a.0 0, a.1 1, c.0 2, d.0 3, d.1 4. The first relay goes 0>1>3>4, the second 2>3>4>0>1.
  Plan::Spec spec = ExactSpecOf(TensorOf("[8]: x=2 on a.0,c.0 [x] -> x=4 on a.0-1,d.0-1 [-]"));
  spec.relays = {
      {.slice_class = 0, .root = 0, .begin = 0, .end = 16, .first_hop = 0, .hop_count = 3},
      {.slice_class = 1, .root = 2, .begin = 0, .end = 16, .first_hop = 3, .hop_count = 4}};
  spec.hops = {{.from = 0, .to = 1, .place = 1},
               {.from = 1, .to = 3},
               {.from = 3, .to = 4},
               {.from = 2, .to = 3},
               {.from = 3, .to = 4, .place = 1},
               {.from = 4, .to = 0},
               {.from = 0, .to = 1}};
  spec.copies = {{.slice_class = 0, .device = 0}};
  ExpectInternalError(
      spec,
      "channel a.0>a.1, relay 0 of class 0, bytes [0, 16): expected an order in which "
      "no hop waits for itself, found a circle of hops through place 1");
}

TEST(ProofExactTest, ACircleIsNamedByItsFirstHopPastHopsThatAreFree) {
  // Ranks: a.0 0, a.1 1, c.0 2, d.0 3, d.1 4. The first relay goes 0>1>3>4, the second 2>3>4>0>1:
  // they wait for each other in 0>1 and 3>4. The third, which goes before the second in 4>0, is
  // free.
  Plan::Spec spec = ExactSpecOf(TensorOf("[8]: x=2 on a.0,c.0 [x] -> x=4 on a.0-1,d.0-1 [-]"));
  spec.relays = {
      {.slice_class = 0, .root = 0, .begin = 0, .end = 16, .first_hop = 0, .hop_count = 3},
      {.slice_class = 1, .root = 2, .begin = 0, .end = 8, .first_hop = 3, .hop_count = 4},
      {.slice_class = 1, .root = 2, .begin = 8, .end = 16, .first_hop = 7, .hop_count = 4}};
  spec.hops = {{.from = 0, .to = 1, .place = 1},
               {.from = 1, .to = 3},
               {.from = 3, .to = 4},
               {.from = 2, .to = 3},
               {.from = 3, .to = 4, .place = 1},
               {.from = 4, .to = 0, .place = 1},
               {.from = 0, .to = 1},
               {.from = 2, .to = 4},
               {.from = 4, .to = 0},
               {.from = 2, .to = 1},
               {.from = 2, .to = 3, .place = 1}};
  spec.copies = {{.slice_class = 0, .device = 0}};
  ExpectInternalError(
      spec,
      "channel a.0>a.1, relay 0 of class 0, bytes [0, 16): expected an order in which "
      "no hop waits for itself, found a circle of hops through place 1");
}

TEST(ProofExactTest, OneByteCountsAsASourceAndAsALimit) {
  Plan::Spec spec = ExactSpecOf(TensorOf("[1]: x=1 on a.0 [-] -> x=1 on a.0 [-]", DataType::kU8));
  spec.copies = {{.slice_class = 0, .device = 0}};
  spec.shared_storage = true;
  ASSERT_OK_AND_ASSIGN(const Proof proof, ExactProofOf(spec));
  EXPECT_EQ(proof.peak_device_bytes, 2);
  EXPECT_EQ(proof.peak_device, "a.0: source 1, destination 1, staging 0 bytes");
  EXPECT_THAT(ExactProofOf(spec, {.device_bytes_max = 1}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "memory of device a.0: source 1, destination 1, staging 0 bytes: expected "
                       "at most 1, found 2"));
  Plan::Spec sent = ExactSpecOf(TensorOf("[1]: x=1 on a.0 [-] -> x=1 on b.0 [-]", DataType::kU8));
  sent.relays = {{.begin = 0, .end = 1, .first_hop = 0, .hop_count = 1}};
  sent.hops = {{.from = 0, .to = 1}};
  sent.binding = BindingMode::kInPlace;
  ASSERT_OK_AND_ASSIGN(const Proof of_sent, ExactProofOf(sent));
  EXPECT_EQ(of_sent.peak_device_bytes, 1);
  EXPECT_EQ(of_sent.peak_device, "a.0: source 1, destination 0, staging 0 bytes");
}

}  // namespace
}  // namespace crossmesh
