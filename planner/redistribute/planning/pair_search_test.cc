#include "planner/redistribute/planning/pair_search.h"

#include "common/testing/status_matchers.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

struct SlowPair {
  std::string mesh;
  Shape shape;
  std::string source;
  std::string destination;
  std::vector<std::string> partial;
};

ReshardRequest RequestOfPair(const SlowPair& pair, int64_t bytes_per_second) {
  const Mesh mesh = *ParseMesh(pair.mesh);
  std::vector<Host> hosts;
  for (const std::string name : {"a", "b"}) {
    hosts.push_back({.name = name, .nics = {{"n", bytes_per_second, bytes_per_second, 0, 0}}});
  }
  ReshardRequest request{
      .tensors = std::make_shared<const TensorTable>(
          TensorTable::Create({.sources = {{mesh, *ParseLayout(pair.source)}},
                               .destinations = {{mesh, *ParseLayout(pair.destination)}},
                               .groups = {{.shape = pair.shape, .type = DataType::kF32}},
                               .group_of_tensor = {0}})
              .value()),
      .topology = *Topology::Create(std::move(hosts), {}),
      .strategy = Strategy::kRedistribute};
  request.redistribution.source_partial = pair.partial;
  if (!pair.partial.empty()) request.redistribution.reduction = "sum";
  return request;
}

// Of 500 pairs by chance those whose search ended by its budget with more than one axis at a time
// takes.
std::vector<SlowPair> SlowPairs() {
  return {
      {"x=2,y=2,z=2,w=2 on a.0-7,b.0-7", *Shape::Create({{768, 96, 384}}), "[x, -, y*z]",
       "[z, -, y*w]"},
      {"x=2,y=2,z=2,w=2 on a.0-7,b.0-7",
       *Shape::Create({{384, 48, 384}}),
       "[x, w, y]",
       "[w, y, z]",
       {"z"}},
      {"x=2,y=8 on a.0-7,b.0-7", *Shape::Create({{768, 48, 384}}), "[x, -, -]", "[y, x, -]", {"y"}},
      {"x=4,y=4 on a.0-7,b.0-7", *Shape::Create({{96, 192, 48}}), "[y, x, -]", "[-, y, x]"},
      {"x=2,y=2,z=2,w=2 on a.0-7,b.0-7", *Shape::Create({{192, 48, 192}}), "[x*w, z, -]",
       "[w*z, -, y]"},
  };
}

TEST(PairSearchTest, WhatTheBudgetEndsTakesNoLongerThanAMethodOfTheLiterature) {
  for (const SlowPair& pair : SlowPairs()) {
    const ReshardRequest request = RequestOfPair(pair, 2'000'000'000);
    ASSERT_OK_AND_ASSIGN(const PairSearches searches, PairSearches::Create(request));
    ASSERT_OK_AND_ASSIGN(PairSearch search, searches.Of(0));
    ASSERT_OK_AND_ASSIGN(const Derivation found, search.Find());
    search.method = RedistributionBaseline::kOneAxis;
    ASSERT_OK_AND_ASSIGN(const Derivation by_axes, search.Find());
    EXPECT_LE(found.seconds(), by_axes.seconds() * (1 + 1e-9)) << found.Text() << by_axes.Text();
    // Within a limit that one axis at a time does not keep to.
    search.method.reset();
    search.options.live_bytes_max = by_axes.peak_live_bytes() - 1;
    const absl::StatusOr<Derivation> limited = search.Find();
    if (limited.ok()) EXPECT_LT(limited->peak_live_bytes(), by_axes.peak_live_bytes());
  }
}

TEST(PairSearchTest, WhatAMethodFindsHasTheStagingThatIsDeclared) {
  constexpr int64_t kStaging = 1000;
  int64_t by_axes = 0;  // what the search gives way to
  for (const SlowPair& pair : SlowPairs()) {
    const ReshardRequest request = RequestOfPair(pair, 2'000'000'000);
    ASSERT_OK_AND_ASSIGN(const PairSearches searches, PairSearches::Create(request));
    ASSERT_OK_AND_ASSIGN(PairSearch search, searches.Of(0));
    search.method = RedistributionBaseline::kOneAxis;
    ASSERT_OK_AND_ASSIGN(const Derivation without, search.Find());
    search.options.staging.bytes = kStaging;
    ASSERT_OK_AND_ASSIGN(const Derivation with, search.Find());
    EXPECT_EQ(with.peak_live_bytes(), without.peak_live_bytes() + kStaging);
    search.method.reset();
    ASSERT_OK_AND_ASSIGN(const Derivation found, search.Find());
    by_axes += found.seconds() == with.seconds() ? 1 : 0;
  }
  EXPECT_GT(by_axes, 0);
}

}  // namespace
}  // namespace crossmesh
