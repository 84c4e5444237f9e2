// What the search knows of NCCL's collectives, beside what plans then have.

#include "common/mesh/gpu_host.h"
#include "common/plan/proof.h"
#include "common/plan/step_collective.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/network/gpu_network.h"
#include "planner/network/ring_prediction.h"
#include "planner/redistribute/collective_cost.h"
#include "planner/redistribute/mesh_cost.h"
#include "planner/redistribute/planning/course_draft.h"
#include "planner/redistribute/planning/group_routes.h"
#include "planner/redistribute/planning/pair_search.h"
#include "planner/redistribute/planning/plan_redistribution.h"
#include "planner/redistribute/planning/testing/course_requests.h"
#include "planner/redistribute/testing/random_redistribution.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

struct Ends {
  std::string mesh;
  std::string source;
  std::string destination;
  std::vector<std::string> partial = {};
  DataType type = DataType::kF32;
};

// Of a tensor of 4096 x 4096 on GPUs of hosts "h100x8", with sums in any order.
ReshardRequest RequestOn(const Ends& ends) {
  const Mesh mesh = *ParseMesh(ends.mesh);
  ReshardRequest request{
      .tensors = std::make_shared<const TensorTable>(
          TensorTable::Create(
              {.sources = {{mesh, *ParseLayout(ends.source)}},
               .destinations = {{mesh, *ParseLayout(ends.destination)}},
               .groups = {{.shape = *Shape::Create({{4096, 4096}}), .type = ends.type}},
               .group_of_tensor = {0}})
              .value()),
      .strategy = Strategy::kRedistribute};
  PutOnGpus(request);
  request.no_collectives = false;
  request.redistribution.source_partial = ends.partial;
  if (!ends.partial.empty()) request.redistribution.reduction = "sum";
  request.redistribution.reduction_order = "any";
  return request;
}

Derivation DerivationOf(const ReshardRequest& request) {
  return PairSearches::Create(request)->Of(0)->Find().value();
}

constexpr const char* kTwoHosts = "node=2,gpu=8 on a.0-7,b.0-7";

TEST(SearchMedia, AFlatGatherTakesARingOverAllNicsWhereMessagesTakeTwoLevels) {
  ReshardRequest request =
      RequestOn({.mesh = kTwoHosts, .source = "[node*gpu, -]", .destination = "[-, -]"});
  const Derivation by_nccl = DerivationOf(request);
  ASSERT_EQ(by_nccl.steps().size(), 1);
  EXPECT_TRUE(by_nccl.steps()[0].is_nccl_collective);
  EXPECT_THAT(by_nccl.Text(), HasSubstr(" us by NCCL\n"));
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanRedistribution(request));
  EXPECT_OK(Prove(plan));
  EXPECT_THAT(plan.figures().search, HasSubstr("by NCCL: 1 all-gather"));

  request.no_collectives = true;
  const Derivation by_messages = DerivationOf(request);
  EXPECT_EQ(by_messages.steps().size(), 2);
  EXPECT_FALSE(by_messages.steps()[0].is_nccl_collective);
  EXPECT_LT(by_nccl.seconds(), by_messages.seconds());
  ASSERT_OK_AND_ASSIGN(const Plan without, PlanRedistribution(request));
  EXPECT_LT(plan.figures().predicted_seconds, 0.9 * without.figures().predicted_seconds);
}

TEST(SearchMedia, SumsOfAllAreOneRingWhereNcclMayMakeThem) {
  Ends ends{.mesh = kTwoHosts,
            .source = "[-, -]",
            .destination = "[node*gpu, -]",
            .partial = {"node", "gpu"}};
  ReshardRequest request = RequestOn(ends);
  const Derivation any_order = DerivationOf(request);
  ASSERT_EQ(any_order.steps().size(), 1);
  EXPECT_TRUE(any_order.steps()[0].is_nccl_collective);
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanRedistribution(request));
  EXPECT_THAT(plan.figures().search, HasSubstr("by NCCL: 1 reduce-scatter"));
  const auto has_collectives = [](const Derivation& derivation) {
    return std::ranges::any_of(derivation.steps(), &RedistributionStep::is_nccl_collective);
  };
  request.redistribution.reduction = "max";
  EXPECT_FALSE(has_collectives(DerivationOf(request)));
  request.redistribution.reduction = "mean";
  EXPECT_TRUE(has_collectives(DerivationOf(request)));
  request.redistribution.reduction_order = "fixed";
  EXPECT_FALSE(has_collectives(DerivationOf(request)));
  ends.type = DataType::kI16;  // which NCCL does not add
  EXPECT_FALSE(has_collectives(DerivationOf(RequestOn(ends))));
}

TEST(SearchMedia, HostMemoryHasNoCollectivesOfNccl) {
  ReshardRequest request =
      RequestOn({.mesh = kTwoHosts, .source = "[node*gpu, -]", .destination = "[-, -]"});
  request.topology = Topology();
  EXPECT_FALSE(PairSearches::Create(request)->Of(0)->options.cost.rings.has_value());
  request.topology = *GpuHosts("h100x8", {"a"});  // b has host memory
  EXPECT_FALSE(PairSearches::Create(request)->Of(0)->options.cost.rings.has_value());
}

// That costs nothing.
RingCost Free() {
  return {.bytes_per_second_max = 1e30,
          .bytes_per_second_inside = 1e30,
          .bytes_per_second_between_hosts = 1e30,
          .hashed_bytes_per_second = 1e30,
          .adds = true};
}

// The tables of its steps.
Course<StepTable> Lowered(const TensorTable& whole, const Derivation& derivation) {
  GroupRoute route;
  route.derivation = std::make_unique<const Derivation>(derivation);
  route.lowering = std::make_unique<const Lowering>(*route.derivation);
  route.tensors = {0};
  const GroupRoute* const routes[] = {&route};
  return DraftCourses(whole, routes, {.instances = 1, .whole_tensors = true}).value()[0];
}

// Every step of random redistributions, by layouts and by local types.
TEST(SearchMedia, WhatTheSearchTakesForACollectiveIsOneByLayouts) {
  const uint64_t first = FromEnvironment("CROSSMESH_SEED", 1);
  const int64_t cases = RandomCases(400);
  int64_t collectives = 0;
  int64_t others = 0;
  for (uint64_t seed = first; seed < first + cases && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed, " CROSSMESH_CASES=1"));
    RedistributionRequest drawn =
        RandomRedistribution(seed, {.devices_max = 24, .partial = seed % 2 == 0, .uneven = false});
    CourseRequest course = RequestOf(drawn, {.devices_of_host = 4, .type = DataType::kF32});
    course.request.redistribution.no_relays = true;
    course.request.redistribution.reduction_order = "any";
    if (drawn.source.partial.empty() ||
        drawn.source.partial[0].reduction != PartialReduction::kSum) {
      course.request.redistribution.method = seed % 3 == 0 ? "one_axis" : "";
    }
    ASSERT_OK_AND_ASSIGN(const PairSearches searches, PairSearches::Create(course.request));
    ASSERT_OK_AND_ASSIGN(const PairSearch search, searches.Of(0));
    const absl::StatusOr<Derivation> derivation = search.Find();
    if (!derivation.ok()) continue;  // what the method cannot say
    const StepPrices prices(derivation->space(), {.seconds_per_step = 1, .rings = Free()});
    const bool is_sum = course.request.redistribution.reduction == "sum";
    const Course<StepTable> lowered = Lowered(*course.request.tensors, *derivation);
    // Slices go with other steps, and an all-reduce is two.
    if (lowered.steps.size() != derivation->steps().size()) continue;
    for (size_t k = 0; k < lowered.steps.size(); ++k) {
      RedistributionStep step = derivation->steps()[k];
      const bool reduces = step.kind == StepKind::kReduceScatter;
      if (step.kind != StepKind::kAllGather && !(reduces && is_sum)) continue;
      prices.Price(step);
      const auto found =
          FindStepCollective(lowered.steps[k].move->tensors(), lowered.steps[k].reduction);
      EXPECT_EQ(step.is_nccl_collective, found.has_value()) << k << "\n" << derivation->Text();
      ++(found.has_value() ? collectives : others);
    }
  }
  if (cases >= 400) {
    EXPECT_GT(collectives, 40);
    EXPECT_GT(others, 20);
  }
}

// What the search takes for the time of a collective is what its plan is predicted to take.
TEST(SearchMedia, PricesAreThoseOfPlans) {
  for (const std::string mesh :
       {"node=2,gpu=8 on a.0-7,b.0-7", "node=2,gpu=8 on a.0-3,b.0-3,c.0-7",
        "node=4,gpu=2 on a.0-1,b.0-1,c.0-1,d.0-1", "node=2,gpu=4 on a.0-7"}) {
    for (const std::string source : {"[node*gpu, -]", "[gpu, -]", "[node, gpu]"}) {
      const std::string destination = source == "[node, gpu]" ? "[-, gpu]" : "[-, -]";
      SCOPED_TRACE(absl::StrCat(mesh, " ", source));
      const ReshardRequest request =
          RequestOn({.mesh = mesh, .source = source, .destination = destination});
      const auto collective = FindStepCollective(*request.tensors, std::nullopt);
      ASSERT_TRUE(collective.has_value());
      const auto network = GpuNetworkOf(*request.tensors, request.topology);
      const auto elements =
          Volume(request.tensors->TileOf(Side::kSource, 0, collective->groups[0][0]));
      const double predicted =
          PredictRing(*network, {.collective = *collective, .piece_bytes = 4 * elements});
      const PairSearch search = PairSearches::Create(request)->Of(0).value();
      const TypeSpace space(search.request, NeededAtoms(search.request));
      ASSERT_OK_AND_ASSIGN(
          RedistributionStep step,
          MakeStep(space, StepKind::kAllGather, {space.source(), space.destination()}));
      EXPECT_DOUBLE_EQ(RingPrices(space, *search.options.cost.rings)
                           .Seconds(step.kind, step.atoms, space.LocalBytes(step.before)),
                       predicted);
    }
  }
}

}  // namespace
}  // namespace crossmesh
