#include "planner/layers/layer_program_codec.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "planner/layers/planned_layers.h"

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using Spec = v1::LayerProgramSpec;

// An op whose output is summed over c, and one that needs it.
Spec SumSpec() {
  Spec spec;
  spec.set_name("layers");
  v1::PipelineRank& rank = *spec.add_ranks();
  rank.mutable_inline_mesh()->set_axes("c=2");
  rank.mutable_inline_mesh()->set_devices("a.0-1");
  rank.set_device_bytes_max(1 << 20);
  for (const char* name : {"product", "norm"}) {
    Spec::Op& op = *spec.add_ops();
    op.set_name(name);
    op.set_seconds(0.5);
    op.set_layer("layer0");
  }
  Spec::Transfer& sum = *spec.add_transfers();
  sum.set_name("sum");
  sum.add_partial_axes("c");
  Spec::Tensor& tensor = *sum.add_tensors();
  tensor.mutable_tensor()->set_name("out");
  tensor.mutable_tensor()->set_dtype("F32");
  tensor.mutable_tensor()->add_shape(8);
  tensor.set_source_layout("[-]");
  tensor.set_destination_layout("[c]");
  sum.add_messages()->set_consumer(1);
  return spec;
}

TEST(LayerProgramCodecTest, ASpecificationIsDecoded) {
  ASSERT_OK_AND_ASSIGN(const DescribedLayers layers, FromProto(SumSpec(), {}));
  const LayerProgram& program = layers.program;
  EXPECT_EQ(program.name, "layers");
  ASSERT_EQ(program.ranks.size(), 1);
  EXPECT_EQ(ToString(*program.ranks[0].mesh), "c=2 on a.0-1");
  EXPECT_EQ(program.ranks[0].device_bytes_max, ByteCount(1 << 20));
  ASSERT_EQ(program.ops.size(), 2);
  EXPECT_EQ(program.ops[1].name, "norm");
  EXPECT_EQ(program.ops[1].seconds, 0.5);
  EXPECT_EQ(program.ops[1].layer, "layer0");
  ASSERT_EQ(program.transfers.size(), 1);
  EXPECT_THAT(program.transfers[0].partial, ElementsAre("c"));
  EXPECT_EQ(program.transfers[0].buffers, 1);
  EXPECT_THAT(program.transfers[0].messages, ElementsAre(LayerProgram::Message{0, 1}));
  EXPECT_FALSE(layers.topology.has_value());
}

TEST(LayerProgramCodecTest, MeshesOfNamesAreThoseThatWereFound) {
  Spec spec = SumSpec();
  spec.mutable_ranks(0)->set_mesh("grid");
  const auto mesh = std::make_shared<const Mesh>(*ParseMesh("c=4 on b.0-3"));
  ASSERT_OK_AND_ASSIGN(const DescribedLayers layers, FromProto(spec, {mesh}));
  EXPECT_EQ(layers.program.ranks[0].mesh, mesh);
  EXPECT_THAT(FromProto(spec, {nullptr}), IsRefused("ranks[0]: mesh: expected a name"));
}

TEST(LayerProgramCodecTest, WhatIsRefusedIsNamed) {
  struct Case {
    std::string expected;
    std::function<void(Spec&)> spoil;
  };
  const auto sum_of = [](Spec& spec) { return spec.mutable_transfers(0); };
  const std::vector<Case> cases = {
      {"layers", [](Spec& s) { s.set_name("No Name"); }},
      {"ranks: expected from 1", [](Spec& s) { s.clear_ranks(); }},
      {"ranks[1]: mesh: expected devices of its own, found a.0, which rank 0 has",
       [](Spec& s) { *s.add_ranks() = s.ranks(0); }},
      {"ranks[0]: device_bytes_max: expected from 0",
       [](Spec& s) { s.mutable_ranks(0)->set_device_bytes_max(-1); }},
      {"ops: expected from 1", [](Spec& s) { s.clear_ops(); }},
      {"ops[1].seconds: expected from 0 to 1e+06, found nan",
       [](Spec& s) { s.mutable_ops(1)->set_seconds(std::numeric_limits<double>::quiet_NaN()); }},
      {"op norm: expected a rank below 1, found 7", [](Spec& s) { s.mutable_ops(1)->set_rank(7); }},
      {"transfers: expected from 1", [](Spec& s) { s.clear_transfers(); }},
      {"transfers[0] \"sum\": tensors: expected from 1",
       [&](Spec& s) { sum_of(s)->clear_tensors(); }},
      {"transfers[0] \"sum\": tensors[1] \"out\": expected another name",
       [&](Spec& s) { *sum_of(s)->add_tensors() = sum_of(s)->tensors(0); }},
      {"tensors[0] \"out\": source layout",
       [&](Spec& s) { sum_of(s)->mutable_tensors(0)->set_source_layout("c"); }},
      {"tensors[0] \"\"",
       [&](Spec& s) { sum_of(s)->mutable_tensors(0)->mutable_tensor()->clear_name(); }},
      {"buffers: expected from 0 to 65536, found -1", [&](Spec& s) { sum_of(s)->set_buffers(-1); }},
      {"reduction: expected sum, min or max, found \"mean\"",
       [&](Spec& s) { sum_of(s)->set_reduction("mean"); }},
      {"transfers[0] \"sum\": messages", [&](Spec& s) { sum_of(s)->clear_messages(); }},
      {"found x", [&](Spec& s) { sum_of(s)->set_partial_axes(0, "x"); }},
  };
  for (const Case& test : cases) {
    Spec spec = SumSpec();
    test.spoil(spec);
    EXPECT_THAT(FromProto(spec, {}), IsRefused(test.expected));
  }
}

TEST(LayerProgramCodecTest, ASummaryTellsWhatIsExposed) {
  ASSERT_OK_AND_ASSIGN(DescribedLayers layers, FromProto(SumSpec(), {}));
  ASSERT_OK_AND_ASSIGN(const auto planned, PlanLayers(std::move(layers.program), Topology()));
  const v1::PipelinePlan summary = planned->Summary();
  EXPECT_EQ(summary.id(), planned->id.ToString());
  EXPECT_EQ(summary.pipeline(), "layers");
  EXPECT_EQ(summary.proven_ops(), 2);
  EXPECT_EQ(summary.proven_transfers(), 1);
  ASSERT_EQ(summary.ranks_size(), 1);
  EXPECT_EQ(summary.ranks(0).busy_seconds(), 1);
  EXPECT_EQ(summary.ranks(0).peak_bytes(), planned->memory[0].bytes.value());
  ASSERT_EQ(summary.layers().ops_size(), 2);
  EXPECT_EQ(summary.layers().ops(1).name(), "norm");
  EXPECT_EQ(summary.layers().ops(1).begin(), planned->run.ops[1].begin);
  ASSERT_EQ(summary.layers().transfers_size(), 1);
  const v1::LayerRunSummary::Transfer& sum = summary.layers().transfers(0);
  EXPECT_EQ(sum.name(), "sum");
  EXPECT_EQ(sum.messages(), 1);
  EXPECT_EQ(sum.exposed_seconds(), planned->run.exposures[0].exposed);
  EXPECT_EQ(sum.seconds(), planned->transfers[0].seconds());
  ASSERT_EQ(summary.layers().layers_size(), 1);
  const v1::LayerRunSummary::Layer& layer = summary.layers().layers(0);
  EXPECT_EQ(layer.name(), "layer0");
  EXPECT_EQ(layer.op_seconds(), 1);
  EXPECT_EQ(layer.exposed_seconds(), sum.exposed_seconds());
  EXPECT_EQ(layer.hidden_seconds(), sum.hidden_seconds());
}

TEST(LayerProgramCodecTest, AProgramIsEncodedAsItIsDecoded) {
  Spec spec = SumSpec();
  spec.mutable_transfers(0)->set_reduction("max");
  spec.mutable_transfers(0)->set_buffers(3);
  ASSERT_OK_AND_ASSIGN(const DescribedLayers layers, FromProto(spec, {}));
  const Spec encoded = ToProto(layers.program);
  EXPECT_EQ(encoded.DebugString(), spec.DebugString());
}

}  // namespace
}  // namespace crossmesh
