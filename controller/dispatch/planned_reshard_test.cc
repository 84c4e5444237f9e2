#include "controller/dispatch/planned_reshard.h"

#include "common/base/fake_clock.h"
#include "common/mesh/layout.h"
#include "common/testing/allocations/count_allocations.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/planning/plan_request.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Le;

struct Case {
  const char* name;
  std::function<ReshardRequest()> make;

  friend void PrintTo(const Case& of, std::ostream* out) { *out << of.name; }
};

Placement PlacementOf(const std::string& mesh, const std::string& layout) {
  return {*ParseMesh(mesh), *ParseLayout(layout)};
}

ReshardRequest RequestOf(TensorTable::Spec spec) {
  return {.tensors = std::make_shared<const TensorTable>(*TensorTable::Create(std::move(spec)))};
}

// Matrices of 8 rows; all of other lengths, so each a group of its own, or all equal.
ReshardRequest Matrices(int tensors, bool are_equal) {
  TensorTable::Spec spec{.sources = {PlacementOf("x=4 on a.0-3", "[-, x] chunk")},
                         .destinations = {PlacementOf("y=2,z=2 on b.0-1,c.0-1", "[y, z] chunk")}};
  for (int i = 0; i < tensors; ++i) {
    const int group = are_equal ? 0 : i;
    if (group == std::ssize(spec.groups)) {
      spec.groups.push_back({.shape = *Shape::Create(std::vector<int64_t>{8, 100 + i})});
      if (spec.names.size() < TensorTable::kNamesMax) spec.names.emplace_back(256, 'n');
    }
    spec.group_of_tensor.push_back(group);
  }
  return RequestOf(std::move(spec));
}

// Every tensor with tiles of its own, of many boxes.
ReshardRequest Boxes(int tensors, int boxes) {
  TensorTable::Spec spec{.destinations = {PlacementOf("y=1 on b.0", "[-]")}};
  for (int i = 0; i < tensors; ++i) {
    ExplicitLayout tiles{.slots = {{}, {}}};
    for (int64_t box = 0; box < boxes; ++box) tiles.slots[box % 2].push_back(Box({{box, box + 1}}));
    spec.sources.push_back({*ParseMesh("x=2 on a.0-1"), Layout(std::move(tiles))});
    spec.groups.push_back({.shape = *Shape::Create(std::vector<int64_t>{boxes}), .source = i});
    spec.group_of_tensor.push_back(i);
  }
  return RequestOf(std::move(spec));
}

std::string HostName(absl::string_view side, int i) {
  return absl::StrCat("a-host-with-a-rather-long-name-", side, "-", i);
}

// What each of so many hosts has of a tensor goes to all of as many others, in racks.
ReshardRequest Hosts(int hosts) {
  std::vector<std::string> sources;
  std::vector<std::string> destinations;
  std::vector<Host> described;
  for (int i = 0; i < hosts; ++i) {
    sources.push_back(HostName("a", i) + ".0");
    destinations.push_back(HostName("b", i) + ".0");
    for (const char* side : {"a", "b"}) {
      described.push_back({.name = HostName(side, i), .nics = {{"a-card-with-a-long-name", 1, 1}}});
    }
  }
  ReshardRequest request =
      RequestOf({.sources = {PlacementOf(
                     absl::StrCat("x=", hosts, " on ", absl::StrJoin(sources, ",")), "[x]")},
                 .destinations = {PlacementOf(
                     absl::StrCat("y=", hosts, " on ", absl::StrJoin(destinations, ",")), "[-]")},
                 .groups = {{.shape = *Shape::Create(std::vector<int64_t>{hosts * 64})}},
                 .group_of_tensor = {0}});
  request.topology = *Topology::Create(std::move(described), {});
  return request;
}

class PlannedReshardMemoryTest : public ::testing::TestWithParam<Case> {};

// Every device is of a worker of its own: so there are the most parts.
PlannedReshard::DevicesOfWorkers WorkersOf(const PlannedReshard& planned) {
  PlannedReshard::DevicesOfWorkers workers;
  for (const DeviceId& device : planned.tensors().devices()) workers.push_back({device});
  return workers;
}

TEST_P(PlannedReshardMemoryTest, WeighsWhatItKeeps) {
  const FakeClock clock;
  absl::StatusOr<std::shared_ptr<const PlannedReshard>> planned;
  int64_t kept = CountKeptBytes(
      [&] { planned = PlannedReshard::Create(GetParam().make(), ProofLimits(), clock); });
  ASSERT_OK(planned.status());
  const auto is_near = [](int64_t bytes) { return AllOf(Ge(0.9 * bytes), Le(1.1 * bytes)); };
  EXPECT_GT(kept, 1 << 18);
  EXPECT_THAT((*planned)->heap_bytes(), is_near(kept));

  int64_t told = 0;
  kept += CountKeptBytes([&] {
    (*planned)->OnGrowth([&told](int64_t bytes) { told = bytes; });
    EXPECT_OK((*planned)->Cut(WorkersOf(**planned)).status());
  });
  EXPECT_THAT((*planned)->heap_bytes(), is_near(kept));
  EXPECT_EQ((*planned)->heap_bytes(), told);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, PlannedReshardMemoryTest,
    ::testing::Values(Case{"DifferentShapes", [] { return Matrices(20'000, false); }},
                      Case{"EqualShapes", [] { return Matrices(100'000, true); }},
                      Case{"LongNames", [] { return Matrices(4000, false); }},
                      Case{"ExplicitTiles", [] { return Boxes(100, 300); }},
                      Case{"ManyHops", [] { return Hosts(128); }}),
    [](const auto& plan) { return std::string(plan.param.name); });

// How often it asks whether it is wanted, when it is not from one of these times on.
struct Asking {
  int asked = 0;
  absl::Status status;
};
Asking CreateUntil(int unwanted_from, const ReshardRequest& request) {
  const FakeClock clock;
  Asking asking;
  asking.status = PlannedReshard::Create(request, ProofLimits(), clock, [&] {
                    return ++asking.asked >= unwanted_from;
                  }).status();
  return asking;
}

TEST(PlannedReshardTest, APlanOrAProofThatIsNotWantedEndsWhenItAsksNext) {
  constexpr int kNever = 1'000'000;
  for (const ReshardRequest& request : {Matrices(600, false), Hosts(32)}) {
    const Asking whole = CreateUntil(kNever, request);
    ASSERT_OK(whole.status);
    int of_plan = 0;
    ASSERT_OK(PlanRequest(request, [&] { return ++of_plan > kNever; }));
    // Before the proof, and in it: before deliveries, channels and what follows.
    EXPECT_GE(whole.asked, of_plan + 4);
    for (int from = 1; from <= whole.asked; ++from) {
      const Asking given_up = CreateUntil(from, request);
      EXPECT_THAT(given_up.status, StatusIs(absl::StatusCode::kCancelled)) << from;
      EXPECT_EQ(given_up.asked, from);
    }
  }
}

}  // namespace
}  // namespace crossmesh
