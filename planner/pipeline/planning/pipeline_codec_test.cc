#include "planner/pipeline/planning/pipeline_codec.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/planning/testing/example_pipeline.h"
#include "planner/pipeline/planning/testing/planned_pipelines.h"

#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// What is said of the example with a change.
absl::Status Changed(const std::function<void(v1::PipelineSpec&)>& change) {
  v1::PipelineSpec spec = ExamplePipeline();
  change(spec);
  return FromProto(spec, {}).status();
}

TEST(PipelineCodecTest, ReadsTheExample) {
  ASSERT_OK_AND_ASSIGN(const PipelineDescription pipeline, FromProto(ExamplePipeline(), {}));
  EXPECT_EQ(pipeline.name, "u-net");
  ASSERT_EQ(pipeline.ranks.size(), 4u);
  EXPECT_EQ(ToString(*pipeline.ranks[1].mesh), "model=2 on node-b.0-1");
  EXPECT_EQ(pipeline.ranks[1].device_bytes_max, ByteCount(8'000'000'000));
  ASSERT_EQ(pipeline.stages.size(), 4u);
  EXPECT_EQ(pipeline.stages[2].name, "turn");
  EXPECT_EQ(pipeline.stages[2].rank, 2);
  EXPECT_EQ(pipeline.stages[2].weight_gradient_seconds, 0.041);
  EXPECT_EQ(pipeline.stages[2].weight_gradient_bytes, ByteCount(55'000'000));
  ASSERT_EQ(pipeline.edges.size(), 4u);
  EXPECT_EQ(pipeline.edges[3].to, 3);
  EXPECT_EQ(pipeline.edges[3].tensors[0].batch_dimension, 0);
  EXPECT_EQ(ToString(pipeline.edges[3].tensors[0].destination), "[-, model, -]");
  EXPECT_EQ(pipeline.edges[3].forward_seconds, std::nullopt);
  EXPECT_EQ(pipeline.samples, std::vector<int64_t>(16, 8));
  ASSERT_TRUE(pipeline.topology);
  EXPECT_EQ(pipeline.topology->RateOut("node-d"), 1'250'000'000);
}

TEST(PipelineCodecTest, TakesMeshesByName) {
  v1::PipelineSpec spec = ExamplePipeline();
  spec.mutable_ranks(1)->set_mesh("b");
  const auto named = std::make_shared<const Mesh>(*ParseMesh("model=2 on node-x.4-5"));
  ASSERT_OK_AND_ASSIGN(const PipelineDescription pipeline,
                       FromProto(spec, {nullptr, named, nullptr, nullptr}));
  EXPECT_EQ(pipeline.ranks[1].mesh, named);
  EXPECT_THAT(FromProto(spec, {}), IsRefused("ranks[1].mesh: expected a name or an inline mesh"));
}

TEST(PipelineCodecTest, RefusesRanksAndStagesThatDoNotMeet) {
  EXPECT_THAT(Changed([](auto& s) { s.mutable_ranks(2)->clear_mesh_source(); }),
              IsRefused("ranks[2].mesh"));
  EXPECT_THAT(Changed([](auto& s) { s.mutable_ranks(2)->mutable_inline_mesh()->set_axes("x=3"); }),
              IsRefused("ranks[2].inline_mesh: "));
  EXPECT_THAT(
      Changed([](auto& s) { *s.mutable_ranks(2) = s.ranks(0); }),
      IsRefused("ranks[2].mesh: expected devices of its own, found node-a.0, which rank 0"));
  EXPECT_THAT(Changed([](auto& s) { s.mutable_ranks(2)->set_device_bytes_max(-1); }),
              IsRefused("ranks[2].device_bytes_max: expected from 0"));
  EXPECT_THAT(Changed([](auto& s) { s.mutable_stages(3)->set_rank(4); }),
              IsRefused("stages[3].rank: expected from 0 to 3, found 4"));
  EXPECT_THAT(Changed([](auto& s) { s.mutable_stages(3)->set_rank(2); }),
              IsRefused("ranks[3]: expected a stage, found none"));
  EXPECT_THAT(Changed([](auto& s) { s.clear_ranks(); }), IsRefused("ranks: expected from 1"));
  EXPECT_THAT(Changed([](auto& s) { s.clear_stages(); }), IsRefused("stages: expected from 1"));
  EXPECT_THAT(Changed([](auto& s) { s.set_name("U"); }), IsRefused("pipeline"));
}

TEST(PipelineCodecTest, SequencesInPartsHaveAllOfThem) {
  v1::PipelineSpec spec = ExamplePipeline();
  EXPECT_EQ(FromProto(spec, {})->sequence_parts, 1);
  spec.set_sequence_parts(4);
  EXPECT_EQ(FromProto(spec, {})->sequence_parts, 4);
  EXPECT_THAT(Changed([](auto& s) { s.set_sequence_parts(5); }),
              IsRefused("sequence_parts: expected a divisor of the 16 microbatches, found 5"));
  EXPECT_THAT(Changed([](auto& s) { s.set_sequence_parts(-1); }),
              IsRefused("sequence_parts: expected from 0 to 16, found -1"));
  EXPECT_THAT(Changed([](auto& s) {
                s.set_sequence_parts(4);
                s.mutable_stages(0)->set_rank(1);
                s.mutable_stages(1)->set_rank(0);
              }),
              IsRefused("sequence_parts: expected stage 0 on rank 0, found it on rank 1"));
}

// Rank 0 has stages 0 and 3, whose forward ops take 0.01 s and whose backward ops take 0.02 s.
TEST(PipelineCodecTest, PairsAreOfStagesOfOneRank) {
  const auto with_pairs = [](const std::vector<PairProfile>& pairs) {
    v1::PipelineSpec spec = DownAndUp(4);
    for (const PairProfile& pair : pairs) {
      v1::PipelinePair& added = *spec.add_pairs();
      added.set_forward_stage(pair.forward);
      added.set_backward_stage(pair.backward);
      added.set_seconds(pair.seconds);
    }
    return FromProto(spec, {});
  };
  ASSERT_OK_AND_ASSIGN(const PipelineDescription pipeline,
                       with_pairs({{3, 0, 0.02}, {0, 3, 0.025}}));
  EXPECT_EQ(pipeline.pairs, (std::vector<PairProfile>{{0, 3, 0.025}, {3, 0, 0.02}}));
  EXPECT_THAT(
      with_pairs({{0, 1, 0.02}}),
      IsRefused("pairs[0]: expected stages of one rank, found stage 0 on rank 0 and stage 1 "
                "on rank 1"));
  EXPECT_THAT(with_pairs({{0, 3, 0.02}, {4, 0, 0.02}}),
              IsRefused("pairs[1].forward_stage: expected from 0 to 3, found 4"));
  EXPECT_THAT(with_pairs({{0, -1, 0.02}}), IsRefused("pairs[0].backward_stage"));
  EXPECT_THAT(
      with_pairs({{0, 3, 0.019}}),
      IsRefused("pairs[0].seconds: expected at least the 0.02 of the longer op, found 0.019"));
  EXPECT_THAT(with_pairs({{0, 3, 1e7}}), IsRefused("pairs[0].seconds: expected from 0 to 1e+06"));
  EXPECT_THAT(with_pairs({{0, 3, 0.02}, {3, 0, 0.02}, {0, 3, 0.03}}),
              IsRefused("pairs: expected that of stages 0 and 3 once, found it again"));
}

TEST(PipelineCodecTest, RefusesNumbersThatAreNone) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(Changed([](auto& s) { s.mutable_stages(1)->set_forward_seconds(-1); }),
              IsRefused("stages[1].forward_seconds: expected from 0 to 1e+06, found -1"));
  EXPECT_THAT(Changed([](auto& s) { s.mutable_stages(1)->set_input_gradient_seconds(kNaN); }),
              IsRefused("stages[1].input_gradient_seconds"));
  EXPECT_THAT(Changed([](auto& s) { s.mutable_stages(1)->set_weight_gradient_seconds(1e7); }),
              IsRefused("stages[1].weight_gradient_seconds"));
  EXPECT_THAT(Changed([](auto& s) { s.mutable_stages(1)->set_static_bytes(-5); }),
              IsRefused("stages[1].static_bytes"));
  EXPECT_THAT(Changed([](auto& s) { s.mutable_stages(1)->set_input_gradient_bytes(-5); }),
              IsRefused("stages[1].input_gradient_bytes"));
  EXPECT_THAT(Changed([](auto& s) { s.mutable_stages(1)->set_weight_gradient_bytes(1LL << 60); }),
              IsRefused("stages[1].weight_gradient_bytes"));
  EXPECT_THAT(Changed([](auto& s) { s.mutable_edges(0)->set_forward_seconds(kNaN); }),
              IsRefused("edges[0] (stage 0 to 1).forward_seconds"));
  EXPECT_THAT(Changed([](auto& s) { s.mutable_edges(0)->set_backward_seconds(-1); }),
              IsRefused("edges[0] (stage 0 to 1).backward_seconds"));
  EXPECT_THAT(Changed([](auto& s) { s.clear_microbatches(); }), IsRefused("microbatches: "));
  EXPECT_THAT(Changed([](auto& s) { s.mutable_microbatches(0)->set_count(0); }),
              IsRefused("microbatches[0].count"));
  EXPECT_THAT(Changed([](auto& s) { s.mutable_microbatches(0)->set_count(2'000'000'000); }),
              IsRefused("microbatches[0].count"));
  EXPECT_THAT(Changed([](auto& s) { s.mutable_microbatches(0)->set_count(2'000'000); }),
              IsRefused("found 2000000"));
  EXPECT_THAT(Changed([](auto& s) { s.mutable_microbatches(0)->set_samples(0); }),
              IsRefused("microbatches[0].samples"));
  EXPECT_THAT(Changed([](auto& s) {
                for (int i = 0; i < 16; ++i) {
                  s.add_microbatches()->set_count(1);
                  s.mutable_microbatches(i + 1)->set_samples(10 + 2 * i);
                }
              }),
              IsRefused("microbatches, different samples: expected from 1 to 16, found 17"));
  EXPECT_THAT(
      Changed([](auto& s) {
        s.mutable_topology()->mutable_hosts(0)->mutable_nics(0)->set_out_bytes_per_second(-1);
      }),
      IsRefused("topology: "));
}

TEST(PipelineCodecTest, RefusesEdgesThatLeadNowhere) {
  EXPECT_THAT(Changed([](auto& s) { s.mutable_edges(1)->set_to(1); }),
              IsRefused("edges[1] (stage 1 to 1): expected one of the 4 stages and a later one"));
  EXPECT_THAT(Changed([](auto& s) { s.mutable_edges(1)->set_to(4); }),
              IsRefused("edges[1] (stage 1 to 4)"));
  EXPECT_THAT(Changed([](auto& s) { s.mutable_edges(1)->set_from(-1); }),
              IsRefused("edges[1] (stage -1 to 2)"));
  EXPECT_THAT(Changed([](auto& s) { *s.mutable_edges(1) = s.edges(0); }),
              IsRefused("edges[1] (stage 0 to 1): expected it once"));
  EXPECT_THAT(Changed([](auto& s) { s.mutable_edges(1)->clear_tensors(); }),
              IsRefused("edges[1] (stage 1 to 2): expected tensors, or the seconds"));
  EXPECT_OK(Changed([](auto& s) {
    s.mutable_edges(1)->clear_tensors();
    s.mutable_edges(1)->set_forward_seconds(0.01);
    s.mutable_edges(1)->set_backward_seconds(0.02);
  }));
}

TEST(PipelineCodecTest, RefusesLayoutsThatDoNotFitTheirTensor) {
  const auto changed = [](const std::function<void(v1::PipelineTensor&)>& change) {
    return Changed([&](auto& s) { change(*s.mutable_edges(0)->mutable_tensors(0)); });
  };
  EXPECT_THAT(changed([](auto& t) { t.set_source_layout("[data, -]"); }),
              IsRefused("edges[0] (stage 0 to 1).tensors[0] \"hidden.0\": source: layout"));
  EXPECT_THAT(changed([](auto& t) { t.set_source_layout("[data, -"); }),
              IsRefused("\"hidden.0\": source layout: "));
  EXPECT_THAT(changed([](auto& t) { t.set_destination_layout("[data, -, -]"); }),
              IsRefused("\"hidden.0\": destination: layout [data, -, -]: dimension 0 names axis "
                        "data, but the axes of the mesh are model=2"));
  EXPECT_THAT(changed([](auto& t) { t.mutable_tensor()->set_shape(2, 1023); }),
              IsRefused("dimension 2 of [8, 1024, 1023] has 1023 elements, which 2 parts"));
  EXPECT_THAT(changed([](auto& t) { t.mutable_tensor()->set_dtype("B16"); }),
              IsRefused("edges[0] (stage 0 to 1).tensors[0] \"hidden.0\": "));
  EXPECT_THAT(changed([](auto& t) { t.mutable_tensor()->clear_name(); }), IsRefused("tensors[0]"));
  EXPECT_THAT(changed([](auto& t) { t.set_batch_dimension(3); }),
              IsRefused("batch_dimension: expected one of the 3 dimensions of [8, 1024, 1024]"));
  EXPECT_THAT(changed([](auto& t) { t.set_batch_dimension(-1); }), IsRefused("found -1"));
  EXPECT_THAT(changed([](auto& t) { t.set_batch_dimension(1); }),
              IsRefused("expected dimension 1 of [8, 1024, 1024] to have the 8 samples of the "
                        "first microbatch, found 1024"));
  EXPECT_THAT(Changed([](auto& s) { *s.mutable_edges(0)->add_tensors() = s.edges(0).tensors(0); }),
              IsRefused("tensors[1] \"hidden.0\": expected another name"));
  EXPECT_THAT(Changed([](auto& s) {
                s.add_microbatches()->set_count(1);
                s.mutable_microbatches(1)->set_samples(5);
              }),
              IsRefused("\"hidden.0\" for 5 samples: source: layout [data, -, -]: dimension 0 of "
                        "[5, 1024, 1024] has 5 elements"));
}

}  // namespace
}  // namespace crossmesh
