// Lengths that do not divide, by one rule before and by the same or another one afterwards.

#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "common/mesh/shape.h"
#include "common/plan/proof.h"
#include "common/plan/tensor_table.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/derivation.h"
#include "planner/redistribute/planning/pair_search.h"
#include "planner/redistribute/planning/plan_redistribution.h"
#include "planner/redistribute/planning/testing/course_requests.h"

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

// Rows of eight elements from one mesh and layout to another.
CourseRequest Rows(int64_t rows, const Placement& source, const Placement& destination) {
  TensorTable::Spec spec{
      .sources = {source},
      .destinations = {destination},
      .groups = {{.shape = Shape::Create({{rows, 8}}).value(), .type = DataType::kF32}},
      .group_of_tensor = {0}};
  CourseRequest course;
  course.request = {
      .tensors = std::make_shared<const TensorTable>(TensorTable::Create(std::move(spec)).value()),
      .strategy = Strategy::kRedistribute};
  return course;
}

// Of a mesh with an axis of 4 to one where two of 2 are in its place.
CourseRequest RowsOverOtherAxes(int64_t rows, const std::string& source,
                                const std::string& destination) {
  return Rows(rows, {*ParseMesh("s=4,t=2 on a.0-3,b.0-3"), *ParseLayout(source)},
              {*ParseMesh("u=2,v=2,w=2 on a.0-3,b.0-3"), *ParseLayout(destination)});
}

// That a type of the space has on every device what the layout gives it there.
void ExpectTiles(const TypeSpace& space, const LocalType& type, const Placement& placement) {
  const std::vector<Tile> tiles = placement.layout.Tiles(placement.mesh, space.shape());
  for (int64_t device = 0; device < space.devices(); ++device) {
    int64_t held = 0;
    for (const Interval& rows :
         space.IndicesOf(type, 0, space.PartOf(type.dimensions[0], device))) {
      held += rows.length();
      if (rows.length() == 0) continue;
      ASSERT_FALSE(tiles[device].empty()) << "device " << device;
      EXPECT_EQ(rows, tiles[device][0][0]) << "device " << device;
    }
    EXPECT_EQ(held * 8, Volume(tiles[device]) * space.Parts(type.dimensions[1]));
  }
}

TEST(UnevenRules, RulesOfBothEndsCutAxesOfTheirOwnMeshes) {
  const std::vector<std::string> rules = {"chunk", "nested_chunk", "balanced"};
  for (int64_t length = 1; length <= 40; ++length) {
    for (const std::string& source : rules) {
      for (const std::string& destination : rules) {
        SCOPED_TRACE(absl::StrCat(length, " rows, ", source, " to ", destination));
        const CourseRequest course =
            RowsOverOtherAxes(length, "[s*t, -] " + source, "[v*u, w] " + destination);
        ASSERT_OK_AND_ASSIGN(const PairSearches searches, PairSearches::Create(course.request));
        ASSERT_OK_AND_ASSIGN(const PairSearch search, searches.Of(0));
        ASSERT_OK_AND_ASSIGN(const Derivation derivation, search.Find());
        const TypeSpace& space = derivation.space();
        const TensorTable& tensors = *course.request.tensors;
        ExpectTiles(space, space.source(), tensors.PlacementOf(Side::kSource, 0));
        ExpectTiles(space, space.destination(), tensors.PlacementOf(Side::kDestination, 0));
        ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(course));
        EXPECT_OK(Prove(plan));
      }
    }
  }
}

// Whose dimension seems to stay, by the atoms that cut it.
TEST(UnevenRules, ADimensionThatARuleCutsOverOtherAxesDoesNotStay) {
  CourseRequest course = RowsOverOtherAxes(9, "[s*t, -] nested_chunk", "[u*v*w, -] nested_chunk");
  course.request.redistribution.no_relays = true;
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(course));
  EXPECT_OK(Prove(plan));
  EXPECT_GT(plan.relays().size(), 0);
}

TEST(UnevenRules, SumsMayHaveAnotherRuleAfterwards) {
  const Mesh mesh = *ParseMesh("p=2,s=4,t=2 on a.0-15");
  CourseRequest course = Rows(9, {mesh, *ParseLayout("[s*t, -] nested_chunk")},
                              {mesh, *ParseLayout("[t*s, -] balanced")});
  course.request.redistribution.source_partial = {"p"};
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(course));
  EXPECT_OK(Prove(plan));
}

TEST(UnevenRules, SumsOfWhatARuleCutsOverPartsOfAnAxisAreRefused) {
  CourseRequest course =
      Rows(9, {*ParseMesh("p=2,s=4,t=2 on a.0-15"), *ParseLayout("[s*t, -] nested_chunk")},
           {*ParseMesh("q=2,u=2,v=2,w=2 on a.0-15"), *ParseLayout("[u*v*w, -] nested_chunk")});
  course.request.redistribution.source_partial = {"p"};
  EXPECT_THAT(PlanOf(course), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("where rule nested_chunk cuts, found parts of")));
}

}  // namespace
}  // namespace crossmesh
