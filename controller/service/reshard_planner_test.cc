#include "controller/service/reshard_planner.h"

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/metrics/controller_metrics.h"
#include "common/testing/status_matchers.h"
#include "controller/catalog/catalog.h"
#include "controller/dispatch/planned_reshard.h"
#include "controller/dispatch/planning_order.h"
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
  ReshardPlanner planner_{catalog_, clock_, metrics_};
  int64_t train_ = 0;
  int64_t model_ = 0;
};

TEST_F(ReshardPlannerTest, WhatWasPlannedIsFoundAgain) {
  const Planned planned = PlanOf(Spec());
  ASSERT_OK_AND_ASSIGN(const ReshardPlanner::Ticket again, planner_.Open(Spec()));
  EXPECT_EQ(again.planned, planned);
  EXPECT_EQ(again.cost, 0);
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
