// What is refused of a part, word for word, and what its digests are.

#include "common/base/check.h"
#include "common/plan/testing/chain_plan.h"
#include "common/plan/testing/device_sets.h"
#include "common/plan/testing/tables.h"
#include "common/plan/worker_part.h"
#include "common/testing/status_matchers.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

using Change = std::function<void(WorkerPart::Spec& spec)>;

// That of b.0 and b.1. Ranks: a.0 0, a.1 1, b.0 2, b.1 3. 16 bytes of class 0 go 0>2>3, as many of
// class 1 go 1>3>2. Three device sets, two classes.
WorkerPart::Spec PartOfB() {
  const Plan plan = ChainPlan(TensorOf("[8]: x=2 on a.0-1 [x] -> x=2 on b.0-1 [-]"),
                              {"a.0 > b.0 > b.1", "a.1 > b.1 > b.0"});
  const auto parts = CutParts(plan, {{{"a", 0}, {"a", 1}}, {{"b", 0}, {"b", 1}}});
  CHECK_OK(parts);
  return parts->at(1).spec();
}

void ExpectRefused(const Change& change, const std::string& message) {
  WorkerPart::Spec spec = PartOfB();
  change(spec);
  EXPECT_THAT(WorkerPart::Create(std::move(spec)),
              StatusIs(absl::StatusCode::kInvalidArgument, absl::StrCat("worker's part", message)));
}

TEST(WorkerPartExactTest, RefusesDevicesOutOfOrderOrBounds) {
  const std::string expected = ": expected ascending device ranks below 4, found ";
  ExpectRefused([](WorkerPart::Spec& s) { s.tensors = nullptr; }, ": expected tensors, found none");
  const std::vector<std::pair<std::vector<DeviceRank>, int>> sets = {
      {{3, 2}, 2}, {{2, 2}, 2}, {{2, 3, 4}, 4}, {{-1, 2, 3}, -1}};
  for (const auto& [devices, found] : sets) {
    ExpectRefused([&](WorkerPart::Spec& s) { s.devices = devices; },
                  absl::StrCat(", devices", expected, found));
    ExpectRefused([&](WorkerPart::Spec& s) { ReplaceFirstSet(s, devices); },
                  absl::StrCat(", device set", expected, found));
  }
}

TEST(WorkerPartExactTest, RefusesSettingsOutOfBounds) {
  for (const int64_t bytes : {int64_t{0}, -Plan::kLeafBytes, Plan::kLeafBytes + 1}) {
    ExpectRefused(
        [&](WorkerPart::Spec& s) { s.chunk_bytes = bytes; },
        absl::StrCat(", chunk: expected a positive multiple of 65536 bytes, found ", bytes));
  }
  ExpectRefused([](WorkerPart::Spec& s) { s.periods = -1; },
                ", periods: expected 0 or more, found -1");
  ExpectRefused([](WorkerPart::Spec& s) { s.least_run_ns = -1; },
                ", least run: expected 0 or more, found -1");
}

TEST(WorkerPartExactTest, RefusesClassesOfOtherSetsOrConversions) {
  for (const int32_t set : {-1, 3}) {
    const std::string found = absl::StrCat(": expected a device set below 3, found ", set);
    ExpectRefused([&](WorkerPart::Spec& s) { s.class_sets[0].holders = set; },
                  absl::StrCat(", class", found));
    ExpectRefused([&](WorkerPart::Spec& s) { s.class_sets[1].receivers = set; },
                  absl::StrCat(", class", found));
    ExpectRefused([&](WorkerPart::Spec& s) { s.broadcast_groups = {0, set}; },
                  absl::StrCat(", broadcast group", found));
  }
  ExpectRefused([](WorkerPart::Spec& s) { s.class_sets[0] = {.holders = 7, .receivers = 8}; },
                ", class: expected a device set below 3, found 7");
  for (const ConversionIndex conversion : {-2, 0}) {
    ExpectRefused(
        [&](WorkerPart::Spec& s) { s.class_sets[1].conversion = conversion; },
        absl::StrCat(", conversion of a class: expected none or one below 0, found ", conversion));
  }
}

TEST(WorkerPartExactTest, RefusesRelaysOutOfOrderOrBounds) {
  ExpectRefused([](WorkerPart::Spec& s) { s.relays[0].relay = -1; },
                ", index of relay -1: expected above -1 and below 2097152, found -1");
  ExpectRefused([](WorkerPart::Spec& s) { s.relays[1].relay = 0; },
                ", index of relay 0: expected above 0 and below 2097152, found 0");
  ExpectRefused([](WorkerPart::Spec& s) { s.relays[1].relay = Plan::kRelaysMax; },
                ", index of relay 2097152: expected above 0 and below 2097152, found 2097152");
  WorkerPart::Spec last = PartOfB();
  last.relays[1].relay = Plan::kRelaysMax - 1;
  EXPECT_OK(WorkerPart::Create(std::move(last)));
  for (const int32_t index : {-1, 2}) {
    ExpectRefused([&](WorkerPart::Spec& s) { s.relays[0].class_sets = index; },
                  absl::StrCat(", class of relay 0: expected below 2, found ", index));
  }
  for (const DeviceRank device : {-1, 4}) {
    ExpectRefused([&](WorkerPart::Spec& s) { s.relays[0].root = device; },
                  absl::StrCat(", root of relay 0: expected a device of the plan, found ", device));
  }
  for (const int64_t byte : {-1, 16}) {
    ExpectRefused(
        [&](WorkerPart::Spec& s) { s.relays[1].begin = byte; },
        absl::StrCat(", first byte of relay 1: expected from 0 to below 16, found ", byte));
  }
  ExpectRefused([](WorkerPart::Spec& s) { s.relays[0].due = {.begin = 1, .end = 0}; },
                ", due time of relay 0: expected an interval of its plan's run, found 1");
}

TEST(WorkerPartExactTest, RefusesRelaysThatDoNotHaveAllHopsOneAfterTheOther) {
  ExpectRefused([](WorkerPart::Spec& s) { s.relays[0].first_hop = 1; },
                ", hops of relay 0: expected at least one, from 0 to at most 4, found 1");
  ExpectRefused([](WorkerPart::Spec& s) { s.relays[0].hop_count = 0; },
                ", hops of relay 0: expected at least one, from 0 to at most 4, found 0");
  ExpectRefused([](WorkerPart::Spec& s) { s.relays[1].hop_count = 3; },
                ", hops of relay 1: expected at least one, from 2 to at most 4, found 2");
  ExpectRefused([](WorkerPart::Spec& s) { s.relays.pop_back(); },
                ", hops: expected the 2 of its relays, found 4");
}

TEST(WorkerPartExactTest, RefusesHopsOutOfBounds) {
  for (const DeviceRank device : {-1, 4}) {
    ExpectRefused(
        [&](WorkerPart::Spec& s) { s.hops[0].from = device; },
        absl::StrCat(", sender of relay 0: expected a device of the plan, found ", device));
    ExpectRefused(
        [&](WorkerPart::Spec& s) { s.hops[3].to = device; },
        absl::StrCat(", receiver of relay 1: expected a device of the plan, found ", device));
  }
  ExpectRefused([](WorkerPart::Spec& s) { s.hops[1].to = 2; },
                ", receiver of relay 0: expected another than the sender, found 2");
  ExpectRefused([](WorkerPart::Spec& s) { s.hops[0].to = 1; },
                ", hop of relay 0: expected one from or to the worker's devices, not from device, "
                "found 0");
  ExpectRefused([](WorkerPart::Spec& s) { s.hops[3].channel = -1; },
                ", channel of relay 1: expected 0 or more, found -1");
  ExpectRefused([](WorkerPart::Spec& s) { s.hops[3].place = -1; },
                ", place of relay 1: expected 0 or more, found -1");
  ExpectRefused([](WorkerPart::Spec& s) { s.hops[3].period = -1; },
                ", period of relay 1: expected 0 or more, found -1");
}

TEST(WorkerPartExactTest, RefusesCopiesOfOtherClassesOrDevices) {
  for (const int32_t index : {-1, 2}) {
    ExpectRefused([&](WorkerPart::Spec& s) { s.copies.push_back({index, 2}); },
                  absl::StrCat(", class of a copy: expected below 2, found ", index));
  }
  ExpectRefused([](WorkerPart::Spec& s) { s.copies.push_back({0, 1}); },
                ", device of a copy: expected one of the worker's, found 1");
}

// All that a part may say.
WorkerPart::Spec FullPart() {
  WorkerPart::Spec spec = PartOfB();
  spec.plan = Digest::Of("plan");
  spec.relays[0].due = {.begin = 3, .end = 5};
  spec.relays[1].relay = 9;
  spec.relays[1].root = 3;
  spec.relays[1].begin = 4;
  // Two channels, each with a place for either relay.
  spec.hops = {{.from = 0, .to = 2, .channel = 7, .place = 1, .period = 0},
               {.from = 2, .to = 3, .channel = 5, .place = 0, .period = 1},
               {.from = 1, .to = 2, .channel = 7, .place = 0, .period = 2},
               {.from = 2, .to = 3, .channel = 5, .place = 1, .period = 3}};
  spec.copies = {{.class_sets = 1, .device = 2}};
  spec.broadcast_groups = {2, 1};
  spec.chunk_bytes = 2 * Plan::kLeafBytes;
  spec.periods = 4;
  spec.least_run_ns = 6;
  spec.binding = BindingMode::kInPlace;
  spec.shared_storage = true;
  return spec;
}

// They are compared by programs of other builds: what changes the first changes its text as well.
TEST(WorkerPartExactTest, DigestsStayWhatTheyAre) {
  ASSERT_OK_AND_ASSIGN(const WorkerPart part, WorkerPart::Create(FullPart()));
  EXPECT_EQ(part.digest().ToString(), "7f6aa00bc4f0143a0741fc0f0d2fa3a3");
  std::vector<std::pair<ChannelIndex, std::string>> orders;
  for (const auto& [channel, digest] : ChannelOrderDigests(part)) {
    orders.emplace_back(channel, digest.ToString());
  }
  EXPECT_THAT(orders, ElementsAre(Pair(5, "6d906e81ff737c30bbd382aaae5db63d"),
                                  Pair(7, "0d9e7d9b76829860cd8e078eea77b81d")));
}

TEST(WorkerPartExactTest, TheDigestTellsConversionsApart) {
  WorkerPart::Spec spec = FullPart();
  spec.tensors = std::make_shared<const TensorTable>(TableOf(
      {TensorOf("[8]: x=2 on a.0-1 [x] -> x=2 on b.0-1 [-]", DataType::kF32, DataType::kBF16)}));
  ASSERT_OK_AND_ASSIGN(const WorkerPart without, WorkerPart::Create(spec));
  EXPECT_EQ(without.digest().ToString(), "e7e8ff3501911f64c2bc22f32bd5ff69");
  spec.class_sets[0].conversion = 0;
  ASSERT_OK_AND_ASSIGN(const WorkerPart with, WorkerPart::Create(spec));
  EXPECT_NE(with.digest(), without.digest());
}

}  // namespace
}  // namespace crossmesh
