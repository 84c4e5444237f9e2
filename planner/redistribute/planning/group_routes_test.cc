#include "planner/redistribute/planning/group_routes.h"

#include "common/mesh/gpu_host.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/planning/testing/course_requests.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct LayoutPair {
  std::string source;
  std::string destination;
};

constexpr int64_t kTensorBytes = int64_t{4096} * 4096 * 4;

// Of tensors of 4096 x 4096 on 16 GPUs of two hosts: for each the pair of layouts that it has.
ReshardRequest RequestOfPairs(const std::vector<LayoutPair>& pairs,
                              const std::vector<int32_t>& pair_of_tensor) {
  const Mesh mesh = *ParseMesh("node=2,gpu=8 on a.0-7,b.0-7");
  TensorTable::Spec spec{.group_of_tensor = pair_of_tensor};
  for (const LayoutPair& pair : pairs) {
    const auto placement = static_cast<int32_t>(spec.sources.size());
    spec.sources.push_back({mesh, *ParseLayout(pair.source)});
    spec.destinations.push_back({mesh, *ParseLayout(pair.destination)});
    spec.groups.push_back({.shape = *Shape::Create({{4096, 4096}}),
                           .type = DataType::kF32,
                           .source = placement,
                           .destination = placement});
  }
  ReshardRequest request{
      .tensors = std::make_shared<const TensorTable>(TensorTable::Create(std::move(spec)).value()),
      .strategy = Strategy::kRedistribute};
  PutOnGpus(request);
  request.no_collectives = false;
  return request;
}

const LayoutPair kGather = {"[node*gpu, -]", "[-, -]"};  // in two levels, or round one ring of NCCL
const LayoutPair kExchange = {"[gpu, -]", "[-, gpu]"};

absl::StatusOr<GroupRoutes> FindRoutes(const ReshardRequest& request,
                                       RouteMedia media = RouteMedia::kMessages) {
  return GroupRoutes::Find(request, media, [] { return false; });
}

TEST(GroupRoutesTest, TensorsOfOnePairShareARouteAndAreCounted) {
  const ReshardRequest request = RequestOfPairs({kGather, kExchange}, {0, 1, 0});
  ASSERT_OK_AND_ASSIGN(const GroupRoutes routes, FindRoutes(request));
  ASSERT_EQ(routes.all().size(), 2);
  EXPECT_THAT(routes.all()[0]->tensors, ElementsAre(0, 2));
  EXPECT_THAT(routes.all()[1]->tensors, ElementsAre(1));
  EXPECT_EQ(routes.StepCounts(), "1 tensor in 1 step, 2 tensors in 2 steps");
  EXPECT_EQ(routes.InOneStep(), "3 tensors in 1 step");
  EXPECT_FALSE(routes.are_single_steps());
}

TEST(GroupRoutesTest, ByMessagesNoStepIsACollective) {
  const ReshardRequest request = RequestOfPairs({kGather, kExchange}, {0, 1});
  ASSERT_OK_AND_ASSIGN(const GroupRoutes by_messages, FindRoutes(request));
  ASSERT_OK_AND_ASSIGN(const GroupRoutes knowing, FindRoutes(request, RouteMedia::kCollectives));
  EXPECT_FALSE(by_messages.all()[0]->derivation->steps()[0].is_nccl_collective);
  EXPECT_TRUE(knowing.all()[0]->derivation->steps()[0].is_nccl_collective);
  EXPECT_EQ(knowing.StepCounts(), "2 tensors in 1 step");
  EXPECT_TRUE(knowing.are_single_steps());
}

TEST(GroupRoutesTest, RoutesAreTheSameWhereStepsAreOfTheSameKindsWithTheSameEnds) {
  const ReshardRequest request = RequestOfPairs({kGather}, {0});
  ASSERT_OK_AND_ASSIGN(const GroupRoutes routes, FindRoutes(request));
  ASSERT_OK_AND_ASSIGN(const GroupRoutes again, FindRoutes(request));
  EXPECT_TRUE(routes.IsSameAs(again));
  ASSERT_OK_AND_ASSIGN(const GroupRoutes knowing, FindRoutes(request, RouteMedia::kCollectives));
  EXPECT_FALSE(routes.IsSameAs(knowing));
  ReshardRequest gathers_rows = RequestOfPairs({{"[node, gpu]", "[-, gpu]"}}, {0});
  ReshardRequest gathers_columns = RequestOfPairs({{"[node, gpu]", "[node, -]"}}, {0});
  gathers_rows.redistribution.no_relays = true;
  gathers_columns.redistribution.no_relays = true;
  ASSERT_OK_AND_ASSIGN(const GroupRoutes rows, FindRoutes(gathers_rows));
  ASSERT_OK_AND_ASSIGN(const GroupRoutes columns, FindRoutes(gathers_columns));
  ASSERT_EQ(rows.all()[0]->derivation->steps()[0].kind, StepKind::kAllGather);
  ASSERT_EQ(columns.all()[0]->derivation->steps()[0].kind, StepKind::kAllGather);
  EXPECT_FALSE(rows.IsSameAs(columns));
}

TEST(GroupRoutesTest, WhereTheSourceIsReleasedTheLargerTileCounts) {
  for (const LayoutPair& pair : {kGather, LayoutPair{kGather.destination, kGather.source}}) {
    ReshardRequest request = RequestOfPairs({pair}, {0});
    ASSERT_OK_AND_ASSIGN(const GroupRoutes stays, FindRoutes(request));
    EXPECT_EQ(stays.all()[0]->tile_bytes, 0);
    request.redistribution.release_source = true;
    ASSERT_OK_AND_ASSIGN(const GroupRoutes released, FindRoutes(request));
    EXPECT_EQ(released.all()[0]->tile_bytes, kTensorBytes);
  }
}

TEST(GroupRoutesTest, APairWithoutTensorsIsNotLookedAtAndOneThatCannotBeNamesItsTensor) {
  const std::vector<std::string> whole(16, "[0:4096, 0:4096]");
  const LayoutPair no_axes = {"[node*gpu, -]", absl::StrCat("{", absl::StrJoin(whole, "; "), "}")};
  EXPECT_OK(FindRoutes(RequestOfPairs({no_axes, kGather}, {1})));
  ReshardRequest request = RequestOfPairs({kGather}, {0});
  request.redistribution.source_partial = {"none"};
  EXPECT_THAT(FindRoutes(request).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("[4096, 4096]")));
}

TEST(GroupRoutesTest, WhoCancelsIsHeardAfterEachPair) {
  int asked = 0;
  EXPECT_THAT(GroupRoutes::Find(RequestOfPairs({kGather, kExchange, kGather}, {0, 1, 2}),
                                RouteMedia::kMessages, [&] { return ++asked == 2; })
                  .status(),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace crossmesh
