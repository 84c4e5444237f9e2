#include "common/wire/reshard_codec.h"

#include "common/testing/status_matchers.h"
#include "common/wire/plan_codec.h"
#include "common/wire/tensor_codec.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const Manifest& OneTensor() {
  static const Manifest manifest =
      Manifest::Create(
          {{.name = "w", .type = DataType::kF32, .shape = ParseShape("[8, 6]").value()}})
          .value();
  return manifest;
}

void SetSide(v1::ReshardSide& side, const std::string& mesh, const std::string& layout) {
  *side.mutable_inline_mesh() = ToProto(ParseMesh(mesh).value());
  v1::LayoutRule& rule = *side.add_rules();
  rule.set_pattern("*");
  rule.set_layout(layout);
}

v1::ReshardSpec Spec() {
  v1::ReshardSpec spec;
  *spec.mutable_inline_manifest() = ToProto(OneTensor());
  SetSide(*spec.mutable_source(), "x=2 on a.0-1", "[x, -]");
  SetSide(*spec.mutable_destination(), "r=2 on b.0-1", "[-, -]");
  return spec;
}

TEST(ReshardCodecTest, WhatASpecificationLeavesOutIsTheDefault) {
  ASSERT_OK_AND_ASSIGN(const ReshardInputs inputs, FromProto(Spec(), NamedObjects()));
  EXPECT_EQ(*inputs.manifest, OneTensor());
  EXPECT_EQ(*inputs.source.mesh, ParseMesh("x=2 on a.0-1").value());
  EXPECT_EQ(*inputs.destination.mesh, ParseMesh("r=2 on b.0-1").value());
  EXPECT_EQ(inputs.topology, std::nullopt);
  EXPECT_EQ(inputs.strategy, "");
  EXPECT_EQ(inputs.chunk_bytes, 0);
  EXPECT_EQ(inputs.binding, std::nullopt);
  EXPECT_FALSE(inputs.no_broadcasts);
  EXPECT_FALSE(inputs.shared_storage);
  EXPECT_EQ(inputs.limits.device_bytes_max, 0);
  ASSERT_OK_AND_ASSIGN(const TensorTable tensors, BuildReshardTensors(inputs));
  EXPECT_EQ(tensors.devices().size(), 4);
}

TEST(ReshardCodecTest, WhatOnlyARedistributionCanDoIsOne) {
  v1::ReshardSpec spec = Spec();
  spec.mutable_redistribution()->add_source_partial("x");
  spec.mutable_redistribution()->set_release_source(true);
  ASSERT_OK_AND_ASSIGN(const ReshardInputs inputs, FromProto(spec, NamedObjects()));
  EXPECT_EQ(inputs.strategy, "redistribute");
  EXPECT_THAT(inputs.redistribution.source_partial, ElementsAre("x"));
  EXPECT_TRUE(inputs.redistribution.release_source);
  spec.set_strategy("relay");
  EXPECT_THAT(FromProto(spec, NamedObjects()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected strategy \"redistribute\", found \"relay\"")));
}

TEST(ReshardCodecTest, WhatASpecificationSaysIsDecoded) {
  v1::ReshardSpec spec = Spec();
  spec.add_replica_axes("r");
  spec.mutable_topology();
  spec.set_strategy("send_recv");
  spec.set_seed(3);
  spec.set_chunk_bytes(Plan::kLeafBytes);
  spec.set_nic_share(0.5);
  spec.set_no_broadcasts(true);
  spec.set_binding(v1::BINDING_MODE_IN_PLACE);
  spec.set_device_bytes_max(77);
  ASSERT_OK_AND_ASSIGN(const ReshardInputs inputs, FromProto(spec, NamedObjects()));
  EXPECT_THAT(inputs.replica_axes, ElementsAre("r"));
  EXPECT_EQ(inputs.topology, Topology());
  EXPECT_EQ(inputs.strategy, "send_recv");
  EXPECT_EQ(inputs.seed, 3);
  EXPECT_EQ(inputs.chunk_bytes, Plan::kLeafBytes);
  EXPECT_EQ(inputs.nic_share, 0.5);
  EXPECT_TRUE(inputs.no_broadcasts);
  EXPECT_EQ(inputs.binding, BindingMode::kInPlace);
  EXPECT_EQ(inputs.limits.device_bytes_max, 77);
}

TEST(ReshardCodecTest, NamedObjectsTakeTheirPlaces) {
  v1::ReshardSpec spec = Spec();
  spec.set_manifest("model");
  spec.mutable_source()->set_mesh("train");
  spec.mutable_destination()->set_mesh("serve");
  const NamedObjects named = {
      .manifest = std::make_shared<const Manifest>(OneTensor()),
      .source_mesh = std::make_shared<const Mesh>(ParseMesh("x=2 on c.0-1").value()),
      .destination_mesh = std::make_shared<const Mesh>(ParseMesh("r=2 on d.0-1").value())};
  ASSERT_OK_AND_ASSIGN(const ReshardInputs inputs, FromProto(spec, named));
  EXPECT_EQ(inputs.manifest, named.manifest);
  EXPECT_EQ(inputs.source.mesh, named.source_mesh);
  EXPECT_EQ(inputs.destination.mesh, named.destination_mesh);
}

TEST(ReshardCodecTest, StoragesAreSharedWhenTheyHaveOneName) {
  v1::ReshardSpec spec = Spec();
  EXPECT_FALSE(SharesStorage(spec));
  spec.mutable_source()->set_storage("weights");
  EXPECT_FALSE(SharesStorage(spec));
  spec.mutable_destination()->set_storage("weights");
  EXPECT_TRUE(SharesStorage(spec));
}

TEST(ReshardCodecTest, TheFieldThatIsWrongIsNamed) {
  struct Case {
    std::function<void(v1::ReshardSpec& spec)> spoil;
    std::string message;
  };
  const std::vector<Case> cases = {
      {[](auto& spec) { spec.clear_manifest_source(); },
       "spec.manifest: expected a name or an inline manifest"},
      {[](auto& spec) {
         *spec.mutable_inline_manifest()->add_tensors() = ToProto(OneTensor().tensors()[0]);
       },
       "spec.inline_manifest: "},
      {[](auto& spec) { spec.mutable_source()->clear_mesh_source(); },
       "spec.source.mesh: expected a name or an inline mesh"},
      {[](auto& spec) { spec.mutable_destination()->mutable_inline_mesh()->clear_devices(); },
       "spec.destination.inline_mesh: "},
      {[](auto& spec) { spec.mutable_source()->clear_rules(); },
       "spec.source.rules: expected 1 to 4096 rules, found 0"},
      {[](auto& spec) {
         for (int i = 0; i < kReshardRulesMax; ++i) {
           *spec.mutable_destination()->add_rules() = spec.destination().rules(0);
         }
       },
       "spec.destination.rules: expected 1 to 4096 rules, found 4097"},
      {[](auto& spec) { spec.mutable_source()->mutable_rules(0)->set_layout("[x"); },
       "spec.source.rules: "},
      {[](auto& spec) { spec.mutable_topology()->add_hosts(); }, "spec.topology: "},
      {[](auto& spec) { spec.set_binding(static_cast<v1::BindingMode>(9)); }, "binding mode: "},
      {[](auto& spec) { spec.set_device_bytes_max(-1); },
       "spec.device_bytes_max: expected at least 0, found -1"},
  };
  for (const Case& bad : cases) {
    v1::ReshardSpec spec = Spec();
    bad.spoil(spec);
    EXPECT_THAT(FromProto(spec, NamedObjects()),
                StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(bad.message)))
        << bad.message;
  }
}

}  // namespace
}  // namespace crossmesh
