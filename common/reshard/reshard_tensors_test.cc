#include "common/reshard/reshard_tensors.h"

#include "common/testing/status_matchers.h"

#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ReshardTensorsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(source_, ParseMesh("data=4 on a.0-3"));
    ASSERT_OK_AND_ASSIGN(destination_, ParseMesh("stage=2,model=2 on b.0-3"));
  }

  static TensorSpec Tensor(const std::string& name, const std::vector<int64_t>& lengths,
                           DataType type = DataType::kF32) {
    return {.name = name, .type = type, .shape = *Shape::Create(lengths)};
  }

  absl::StatusOr<TensorTable> Build(std::vector<TensorSpec> tensors, absl::string_view source_rules,
                                    absl::string_view destination_rules,
                                    std::vector<std::string> replica_axes = {}) {
    absl::StatusOr<Manifest> manifest = Manifest::Create(std::move(tensors));
    absl::StatusOr<LayoutRules> from = LayoutRules::Parse(source_rules);
    absl::StatusOr<LayoutRules> to = LayoutRules::Parse(destination_rules);
    EXPECT_OK(manifest);
    EXPECT_OK(from);
    EXPECT_OK(to);
    return BuildReshardTensors(*manifest, {.mesh = source_, .rules = *from},
                               {.mesh = destination_, .rules = *to}, std::move(replica_axes));
  }

  Mesh source_;
  Mesh destination_;
};

TEST_F(ReshardTensorsTest, TensorsAlikeShareAGroupAndEqualLayoutsAPlacement) {
  ASSERT_OK_AND_ASSIGN(const TensorTable table,
                       Build({Tensor("h.0.w", {8, 4}), Tensor("h.0.b", {4}),
                              Tensor("h.1.w", {8, 4}), Tensor("out", {8, 4})},
                             "* [data, ...]",
                             "out     [-, model]  on stage=1\n"
                             "h.{l}.w [-, model]  on stage={l}\n"
                             "*       [...]\n"));
  EXPECT_THAT(table.group_of_tensor(), ElementsAre(0, 1, 2, 2));
  // Of rank 2 and of rank 1.
  EXPECT_EQ(table.placements(Side::kSource).size(), 2u);
  // Stage 0, everywhere, stage 1; the rules for "out" and for layer 1 say the same.
  ASSERT_EQ(table.placements(Side::kDestination).size(), 3u);
  EXPECT_EQ(ToString(table.placements(Side::kDestination)[0].mesh), "model=2 on b.0-1");
  EXPECT_EQ(ToString(table.placements(Side::kDestination)[1].mesh), "stage=2,model=2 on b.0-3");
  EXPECT_EQ(ToString(table.placements(Side::kDestination)[2].mesh), "model=2 on b.2-3");
}

TEST_F(ReshardTensorsTest, AGroupIsCalledByItsFirstTensorForPeopleAlone) {
  ASSERT_OK_AND_ASSIGN(const TensorTable table,
                       Build({Tensor("h.0.w\n", {8, 4}), Tensor("b", {4}), Tensor("h.1.w", {8, 4}),
                              Tensor("h.2.w", {8, 4})},
                             "* [data, ...]", "* [...]"));
  EXPECT_EQ(table.NameOf(0), "tensor \"h.0.w\\n\" and 2 more of shape [8, 4]");
  EXPECT_EQ(table.NameOf(1), "tensor \"b\" of shape [4]");
  TensorTable::Spec nameless = table.spec();
  nameless.names.clear();
  ASSERT_OK_AND_ASSIGN(const TensorTable parts, TensorTable::Create(nameless));
  EXPECT_EQ(parts.NameOf(1), "tensor group 1 of shape [4]");
  EXPECT_EQ(parts.digest(), table.digest());
}

TEST_F(ReshardTensorsTest, NamesOfVeryManyGroupsAreNotKept) {
  std::vector<TensorSpec> tensors;
  for (int64_t i = 0; i < 5000; ++i) tensors.push_back(Tensor(absl::StrCat("t", i), {4 + i}));
  ASSERT_OK_AND_ASSIGN(const TensorTable table, Build(tensors, "* [-]", "* [-]"));
  EXPECT_EQ(table.NameOf(4095), "tensor \"t4095\" of shape [4099]");
  EXPECT_EQ(table.NameOf(4096), "tensor group 4096 of shape [4100]");
}

TEST_F(ReshardTensorsTest, ReplicaAxesReachTheTable) {
  ASSERT_OK_AND_ASSIGN(const TensorTable table,
                       Build({Tensor("w", {8})}, "* [data]", "* [model]", {"stage"}));
  EXPECT_EQ(table.replicas(), 2);
}

TEST_F(ReshardTensorsTest, ARuleOfTheDestinationConverts) {
  ASSERT_OK_AND_ASSIGN(const TensorTable table,
                       Build({Tensor("a.w", {8}), Tensor("b.w", {8}, DataType::kBF16),
                              Tensor("a.n", {8}), Tensor("b.n", {8}, DataType::kBF16)},
                             "* [data]", "*.w [model] as BF16\n* [model]"));
  EXPECT_THAT(table.group_of_tensor(), ElementsAre(0, 1, 2, 1));
  EXPECT_EQ(table.placements(Side::kDestination).size(), 1u);
  EXPECT_THAT(table.conversions(), ElementsAre(Conversion{DataType::kF32, DataType::kBF16}));
  EXPECT_EQ(table.conversion_of(0), 0);
  EXPECT_EQ(table.conversion_of(1), kNoConversion);
  EXPECT_EQ(table.conversion_of(2), kNoConversion);
}

TEST_F(ReshardTensorsTest, AConversionToTheOwnTypeIsNone) {
  const std::vector<TensorSpec> tensors = {Tensor("w", {8})};
  ASSERT_OK_AND_ASSIGN(const TensorTable said, Build(tensors, "* [data] as F32", "* [-] as F32"));
  ASSERT_OK_AND_ASSIGN(const TensorTable unsaid, Build(tensors, "* [data]", "* [-]"));
  EXPECT_EQ(said.digest(), unsaid.digest());
}

TEST_F(ReshardTensorsTest, ScalesComeBehindAllTensors) {
  ASSERT_OK_AND_ASSIGN(const TensorTable table,
                       Build({Tensor("w", {512, 300}, DataType::kBF16), Tensor("b", {4})},
                             "w [data, -]\n* [...]", "w [model, -] as F8_E4M3\n* [...]"));
  EXPECT_THAT(table.group_of_tensor(), ElementsAre(0, 1, 2));
  EXPECT_THAT(table.spec().scaled_tensors, ElementsAre(0));
  EXPECT_EQ(ToString(table.groups()[2].shape), "[4, 3]");
}

TEST_F(ReshardTensorsTest, ErrorsNameSideAndTensor) {
  const auto refused = [](absl::string_view side, absl::string_view what) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(HasSubstr(absl::StrCat(side, " layout of tensor \"w\": ")),
                          HasSubstr(std::string(what))));
  };
  const std::vector<TensorSpec> tensors = {Tensor("w", {6, 4})};
  EXPECT_THAT(Build(tensors, "h.* [data, ...]", "* [...]"),
              refused("source", "\"w\": expected one of the 1 layout rules to match it"));
  EXPECT_THAT(Build(tensors, "* [-, data]", "v [-, -]"), refused("destination", "rule"));
  EXPECT_THAT(
      Build(tensors, "* [-]", "* [...]"),
      refused("source", "\"w\": expected a rank of 1, as layout rules, line 1, say, found 2"));
  EXPECT_THAT(Build(tensors, "* [data, -]", "* [...]"), refused("source", "6"));
  EXPECT_THAT(Build(tensors, "* [-, data]", "* [data, -]"), refused("destination", "data"));
  EXPECT_THAT(Build(tensors, "* [-, data]", "* [...] on stage=2"), refused("destination", "2"));
  EXPECT_THAT(Build(tensors, "* [-, data]", "* [...] on expert=0"),
              refused("destination", "expert"));
  EXPECT_THAT(Build(tensors, "* [...]", "* [...] as I32"),
              refused("destination", "F32 cannot be sent as I32"));
  const std::vector<TensorSpec> halves = {Tensor("w", {512, 256}, DataType::kBF16)};
  EXPECT_THAT(Build(halves, "* [-, data]", "* [...] as F8_E4M3"),
              refused("source", "dimension 1 is cut at 64, inside a scale block"));
  EXPECT_THAT(Build(halves, "* [data, -]", "* [-, model*stage] as F8_E4M3"),
              refused("destination", "dimension 1 is cut at 64, inside a scale block"));
  EXPECT_THAT(
      Build({halves[0], Tensor("w_scale_inv", {4, 2})}, "* [...]", "w [...] as F8_E4M3\n* [...]"),
      refused("destination", "called as its scales, found \"w_scale_inv\""));
  EXPECT_THAT(Build(tensors, "* [...] as BF16", "* [...]"),
              refused("source", "expected no type but that of the manifest, F32, found BF16"));
}

}  // namespace
}  // namespace crossmesh
