#include "common/wire/tensor_codec.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(TensorCodecTest, ManifestsSurviveBothWays) {
  std::vector<TensorSpec> tensors;
  for (int i = 0; i < 15; ++i) {
    tensors.push_back({.name = "t" + std::to_string(i),
                       .type = static_cast<DataType>(i),
                       .shape = *Shape::Create(std::vector<int64_t>(i, i % 3))});
  }
  ASSERT_OK_AND_ASSIGN(const Manifest manifest, Manifest::Create(std::move(tensors)));
  const v1::Manifest proto = ToProto(manifest, "model-a");
  EXPECT_EQ(proto.name(), "model-a");
  EXPECT_THAT(FromProto(proto), IsOkAndHolds(manifest));
}

TEST(TensorCodecTest, BadTensorsAreNamed) {
  v1::TensorSpec proto;
  proto.set_name("wte");
  proto.set_dtype("F33");
  EXPECT_THAT(FromProto(proto), StatusIs(absl::StatusCode::kInvalidArgument,
                                         AllOf(HasSubstr("tensor \"wte\""), HasSubstr("F33"))));
  proto.set_dtype("F32");
  proto.add_shape(-1);
  EXPECT_THAT(FromProto(proto), StatusIs(absl::StatusCode::kInvalidArgument,
                                         AllOf(HasSubstr("tensor \"wte\""), HasSubstr("-1"))));
  proto.clear_shape();
  v1::Manifest manifest;
  *manifest.add_tensors() = proto;
  *manifest.add_tensors() = proto;
  EXPECT_THAT(FromProto(manifest), IsRefused("wte"));
}

TEST(TensorCodecTest, MeshesSurviveBothWays) {
  for (const absl::string_view text : {"on a.0", "data=2,model=3 on b.3-5,a.0-2"}) {
    ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh(text));
    EXPECT_THAT(FromProto(ToProto(mesh)), IsOkAndHolds(mesh));
  }
  v1::Mesh proto;
  proto.set_axes("data=2");
  proto.set_devices("a.0");
  EXPECT_THAT(FromProto(proto), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(TensorCodecTest, TopologiesSurviveBothWays) {
  ASSERT_OK_AND_ASSIGN(
      const Topology topology,
      Topology::Create(
          {{.name = "a",
            .nics = {{"n0", 5, 6, 11, 12}, {"n1", 7, 8}},
            .gpus = {{2, "n1", 14, 15, 16, "x", "y"}},
            .local_bytes_per_second = 13},
           {.name = "b", .nics = {{"n0", 9, 10}}}},
          {{.name = "r", .hosts = {"a"}, .up_bytes_per_second = 3, .down_bytes_per_second = 4}},
          1'000,
          {.launch_ns = {17, "l"},
           .group_ns = {18, "g"},
           .message_ns = {19, "m"},
           .channel_bytes_per_second = {20, "c"}}));
  EXPECT_THAT(FromProto(ToProto(topology)), IsOkAndHolds(topology));
  EXPECT_THAT(FromProto(v1::Topology()), IsOkAndHolds(Topology()));
}

TEST(TensorCodecTest, CostsThatAreNotThereAreAssumed) {
  v1::Topology proto;
  proto.mutable_gpu_costs()->mutable_message_ns()->set_value(3);
  ASSERT_OK_AND_ASSIGN(const Topology topology, FromProto(proto));
  EXPECT_EQ(topology.gpu_costs(), (GpuCosts{.message_ns = {3, "assumed"}}));
  proto.mutable_gpu_costs()->mutable_message_ns()->set_value(0);
  EXPECT_THAT(FromProto(proto), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("expected gpu_costs.message_ns of 1 to")));
}

class LayoutRulesCodecTest : public testing::Test {
 protected:
  static absl::StatusOr<LayoutRules> Rules(const std::string& pattern, const std::string& layout,
                                           const std::string& on, const std::string& type = "") {
    google::protobuf::RepeatedPtrField<v1::LayoutRule> rules;
    v1::LayoutRule& rule = *rules.Add();
    rule.set_pattern(pattern);
    rule.set_layout(layout);
    rule.set_on(on);
    rule.set_dtype(type);
    return FromProto(rules);
  }
};

TEST_F(LayoutRulesCodecTest, ARuleIsReadAsItsTextForm) {
  ASSERT_OK_AND_ASSIGN(const LayoutRules rules, Rules("h.{l}.*", "[data, ...] chunk", "stage={l}"));
  ASSERT_OK_AND_ASSIGN(const RuleMatch match, rules.Match("h.3.w", 2));
  EXPECT_EQ(ToString(match.layout), "[data, -] chunk");
  EXPECT_EQ(CoordinatesToString(match.coordinates), "stage=3");
  EXPECT_EQ(match.type, std::nullopt);
  ASSERT_OK_AND_ASSIGN(const LayoutRules converting, Rules("*", "[-]", "", "BF16"));
  EXPECT_EQ(converting.Match("w", 1)->type, DataType::kBF16);
}

TEST_F(LayoutRulesCodecTest, NothingCanTurnIntoAnotherRule) {
  EXPECT_THAT(Rules("", "[-]", ""), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Rules("# a", "[-]", ""), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Rules("a b", "[-]", ""), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Rules("a\n*", "[-]", ""), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Rules("a", "[-]\n* [...]", ""), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Rules("a", "[-] # [...]", ""), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Rules("a", "[-]", "x=1\n* [...]"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Rules("a", "[-]", "", "F32\n* []"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Rules("a", "[-]", "", "F32 on x=1"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Rules("a", "", ""), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace crossmesh
