#include "controller/service/reshard_planner.h"

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/mesh/gpu_host.h"
#include "common/metrics/controller_metrics.h"
#include "common/testing/status_matchers.h"
#include "common/wire/tensor_codec.h"
#include "controller/catalog/catalog.h"
#include "controller/dispatch/planned_reshard.h"
#include "controller/dispatch/planning_order.h"
#include "controller/membership/worker_registry.h"
#include "controller/store/memory_store.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using Planned = std::shared_ptr<const PlannedReshard>;

class DeafListener final : public MembershipListener {
 public:
  void OnWorkerLost(const WorkerRecord& /*worker*/, const absl::Status& /*why*/) override {}
  void OnWorkerReady(const WorkerRecord& /*worker*/) override {}
  void OnGpuProcessLost(const RankName& /*process*/, const absl::Status& /*why*/) override {}
};

// Meshes "train" and "serve", and a manifest "model" of one tensor.
class ReshardPlannerTest : public ::testing::Test {
 protected:
  ReshardPlannerTest() {
    train_ = *catalog_.meshes.Put("train", *ParseMesh("x=2 on a.0,b.0"));
    CHECK_OK(catalog_.meshes.Put("serve", *ParseMesh("y=2 on c.0,d.0")).status());
    model_ = PutManifest("model", 1);
  }

  int64_t PutManifest(const std::string& name, int tensors) {
    std::vector<TensorSpec> specs;
    for (int i = 0; i < tensors; ++i) {
      specs.push_back({absl::StrCat("w", i), DataType::kF32, *ParseShape("[8, 4]")});
    }
    return *catalog_.manifests.Put(name, *Manifest::Create(std::move(specs)));
  }

  static v1::ReshardSpec Spec(const std::string& manifest = "model") {
    v1::ReshardSpec spec;
    spec.set_manifest(manifest);
    for (v1::ReshardSide* side : {spec.mutable_source(), spec.mutable_destination()}) {
      v1::LayoutRule& rule = *side->add_rules();
      rule.set_pattern("*");
      rule.set_layout("[-, -]");
    }
    spec.mutable_source()->set_mesh("train");
    spec.mutable_destination()->set_mesh("serve");
    return spec;
  }

  Planned PlanOf(const v1::ReshardSpec& spec, std::function<bool()> cancelled = NeverCancelled) {
    absl::StatusOr<ReshardPlanner::Ticket> ticket = planner_.Open(spec);
    EXPECT_OK(ticket.status());
    Planned planned;
    planner_.Plan(*ticket, {.cancelled = std::move(cancelled),
                            .done = [&](const ReshardPlanner::Flights::Result& result) {
                              EXPECT_OK(result.status());
                              if (result.ok()) planned = *result;
                            }});
    return planned;
  }

  const RealClock clock_;
  MemoryStore store_;
  Catalog catalog_{store_, /*epoch=*/1};
  ControllerMetrics metrics_;
  DeafListener listener_;
  WorkerRegistry workers_{WorkerRegistry::Options{}, clock_, listener_};
  ReshardPlanner planner_{{catalog_, workers_, clock_, metrics_}, int64_t{1} << 20};
  int64_t train_ = 0;
  int64_t model_ = 0;
};

TEST_F(ReshardPlannerTest, WhatWasPlannedIsFoundAgain) {
  const Planned planned = PlanOf(Spec());
  ASSERT_OK_AND_ASSIGN(const ReshardPlanner::Ticket again, planner_.Open(Spec()));
  EXPECT_EQ(again.planned, planned);
  EXPECT_EQ(again.cost, 0);
}

TEST_F(ReshardPlannerTest, WithoutRoomNothingIsDecodedAndWhatIsCachedIsFound) {
  const Planned planned = PlanOf(Spec());
  const auto no_room = [] { return absl::ResourceExhaustedError("full"); };
  EXPECT_EQ(planner_.Open(Spec(), no_room)->planned, planned);
  v1::ReshardSpec malformed = Spec();
  malformed.mutable_source()->mutable_rules(0)->set_layout("[");
  EXPECT_THAT(planner_.Open(malformed, no_room), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(planner_.Open(malformed), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ReshardPlannerTest, PlansGoWithTheManifestOrMeshThatIsDeleted) {
  for (const int64_t revision : {model_, train_}) {
    const std::weak_ptr<const PlannedReshard> planned = PlanOf(Spec());
    EXPECT_FALSE(planned.expired());
    planner_.Forget(revision + 1000);
    EXPECT_FALSE(planned.expired());
    planner_.Forget(revision);
    EXPECT_TRUE(planned.expired());
  }
}

TEST_F(ReshardPlannerTest, APlanWhoseManifestWasDeletedMeanwhileIsNotKept) {
  const std::weak_ptr<const PlannedReshard> planned = PlanOf(Spec(), [this] {
    if (const auto deleted = catalog_.manifests.Delete("model", model_); deleted.ok()) {
      planner_.Forget(*deleted);
    }
    return false;
  });
  EXPECT_FALSE(catalog_.manifests.Get("model").ok());
  EXPECT_TRUE(planned.expired());
}

TEST_F(ReshardPlannerTest, APlanWhoseClientHasGoneIsGivenUpAndMadeForTheNext) {
  ASSERT_OK_AND_ASSIGN(const ReshardPlanner::Ticket ticket, planner_.Open(Spec()));
  absl::Status told;
  int asked = 0;
  planner_.Plan(ticket,
                {.cancelled = [&] { return ++asked > 1; },  // in the midst of planning
                 .done = [&](const ReshardPlanner::Flights::Result& r) { told = r.status(); }});
  EXPECT_THAT(told, StatusIs(absl::StatusCode::kCancelled));
  EXPECT_GT(asked, 1);
  EXPECT_NE(PlanOf(Spec()), nullptr);
}

TEST_F(ReshardPlannerTest, APlanThatWasCutWeighsMore) {
  const Planned planned = PlanOf(Spec());
  const auto weight = [this] {
    for (const MetricFamily* family : metrics_.metrics().families()) {
      if (family->name().name == metric::kPlanCacheBytes.name) return family->value(0);
    }
    return -1.0;
  };
  const double uncut = weight();
  EXPECT_EQ(uncut, planned->heap_bytes());
  EXPECT_OK(planned->Cut({{{"a", 0}, {"b", 0}, {"c", 0}, {"d", 0}}}).status());
  EXPECT_GT(weight(), uncut);
  EXPECT_EQ(weight(), planned->heap_bytes());
}

// Between the GPUs of four workers, with so little to move that M2N's one group of calls beats
// steps.
TEST_F(ReshardPlannerTest, NcclM2nIsPlannedOnceAllWorkersHaveItUnlessAStrategyIsNamed) {
  v1::ReshardSpec spec = Spec();
  ASSERT_OK_AND_ASSIGN(const Topology network, GpuHosts("h100x8", {"a", "b", "c", "d"}));
  *spec.mutable_topology() = ToProto(network);
  spec.mutable_source()->mutable_rules(0)->set_layout("[x, -]");
  spec.mutable_destination()->mutable_rules(0)->set_layout("[-, y]");
  const auto join = [this](const std::string& host, bool m2n) {
    WorkerRecord record{.name = "w-" + host, .incarnation = 1, .devices = {{host, 0}}};
    record.execution_address = host;
    record.gpus = {{{host, 0}, {"GPU-" + host, 1}}};
    record.m2n = m2n;
    ASSERT_OK(workers_.Register(record).status());
  };
  for (const char* host : {"a", "b", "c"}) join(host, true);
  join("d", false);
  const Planned without = PlanOf(spec);
  EXPECT_EQ(without->plan().figures().strategy, "relay");
  EXPECT_EQ(without->plan().figures().m2n->not_chosen, "worker w-d does not have it");
  join("d", true);
  const Planned with = PlanOf(spec);
  EXPECT_EQ(with->plan().figures().strategy, "m2n");
  EXPECT_EQ(with->plan().figures().m2n->not_chosen, "");
  spec.set_strategy("relay");
  EXPECT_EQ(PlanOf(spec)->plan().figures().m2n->not_chosen, "strategy relay is asked for");
}

// So a queue knows what may not wait for what.
TEST_F(ReshardPlannerTest, ALargeManifestIsLongToPlanAndASmallOneShort) {
  PutManifest("large", 100'000);
  ASSERT_OK_AND_ASSIGN(const ReshardPlanner::Ticket large, planner_.Open(Spec("large")));
  EXPECT_GT(large.cost, PlanningOrder::kLongCost);
  ASSERT_OK_AND_ASSIGN(const ReshardPlanner::Ticket small, planner_.Open(Spec()));
  EXPECT_EQ(small.cost, PlanningCost(1, 4));
  EXPECT_LT(small.cost, PlanningOrder::kLongCost);
}

}  // namespace
}  // namespace crossmesh
