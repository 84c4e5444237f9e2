#include "planner/pipeline/planning/planned_pipeline.h"

#include "common/plan/proof.h"
#include "common/plan/testing/for_each_seed.h"
#include "common/plan/testing/tables.h"
#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/formats/schedule_file.h"
#include "planner/pipeline/planning/pipeline_codec.h"
#include "planner/pipeline/planning/testing/example_pipeline.h"
#include "planner/pipeline/planning/testing/planned_pipelines.h"
#include "planner/reshard/plan_reshard.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

// Two hosts each: what an edge takes is what its plan is predicted to take.
TEST(PlannedPipelineTest, EdgesCostWhatTheirPlansAreSaidTo) {
  ASSERT_OK_AND_ASSIGN(const PlannedPointer planned, PlanOf(Chain(2, 8), ChoiceOf("1f1b")));
  const auto plan_of = [](bool is_forward) {
    const std::string near = "x=2,y=2 on h0a.0-1,h0b.0-1", far = "z=4 on h1a.0-1,h1b.0-1";
    return *PlanReshard({.tensors = std::make_shared<const TensorTable>(
                             TableOf({{.shape = "[4, 262144]",
                                       .source_mesh = is_forward ? near : far,
                                       .source = is_forward ? "[x, y]" : "[-, z]",
                                       .destination_mesh = is_forward ? far : near,
                                       .destination = is_forward ? "[-, z]" : "[x, y]"}}))});
  };
  ASSERT_EQ(planned->transfers.size(), 2u);
  for (const bool is_forward : {true, false}) {
    const Plan plan = plan_of(is_forward);
    const PlannedTransfer& transfer = planned->transfers[is_forward ? 0 : 1];
    EXPECT_EQ(transfer.index, is_forward ? 0 : 1);
    EXPECT_EQ(transfer.samples, 4);
    EXPECT_GT(transfer.seconds, 0);
    EXPECT_EQ(transfer.seconds, plan.figures().predicted_seconds);
    EXPECT_EQ(transfer.plan->relays().size(), plan.relays().size());
    EXPECT_EQ(planned->profile.edges[0].forward_bytes, ByteCount(1 << 20));
  }
  EXPECT_EQ(planned->profile.edges[0].forward_seconds, planned->transfers[0].seconds);
  EXPECT_EQ(planned->profile.edges[0].backward_seconds, planned->transfers[1].seconds);
}

TEST(PlannedPipelineTest, TimesGivenByHandComeFirst) {
  v1::PipelineSpec spec = Chain(2, 8);
  spec.mutable_edges(0)->set_backward_seconds(0.5);
  ASSERT_OK_AND_ASSIGN(const PlannedPointer planned, PlanOf(spec, ChoiceOf("1f1b")));
  EXPECT_EQ(planned->transfers[1].seconds, 0.5);
  EXPECT_NE(planned->transfers[1].plan, nullptr);
  EXPECT_EQ(planned->profile.edges[0].backward_seconds, 0.5);
  EXPECT_LT(planned->transfers[0].seconds, 0.1);

  spec.mutable_edges(0)->clear_tensors();
  spec.mutable_edges(0)->set_forward_seconds(0.25);
  ASSERT_OK_AND_ASSIGN(const PlannedPointer bare, PlanOf(spec, ChoiceOf("1f1b")));
  EXPECT_EQ(bare->transfers[0].seconds, 0.25);
  EXPECT_EQ(bare->transfers[0].plan, nullptr);
  EXPECT_TRUE(bare->Summary().transfers(0).plan_id().empty());
}

// The example: a U with a skip from the first stage to the last, under each schedule.
TEST(PlannedPipelineTest, TheExampleIsPlannedByEverySchedule) {
  for (const char* name : {"", "auto", "gpipe", "1f1b", "eager_1f1b", "window_order", "zb_h1"}) {
    for (const bool delay : {false, true}) {
      SCOPED_TRACE(absl::StrCat(name, delay ? " delayed" : ""));
      v1::PipelineChoice choice = ChoiceOf(name);
      choice.set_delay_weight_gradients(delay);
      ASSERT_OK_AND_ASSIGN(const PlannedPointer planned, PlanOf(ExamplePipeline(), choice));
      EXPECT_EQ(planned->model, TransferModel::kPorts);
      EXPECT_EQ(planned->transfers.size(), 8u);
      EXPECT_EQ(planned->proof.messages, 8 * 16);
      EXPECT_GE(planned->run.seconds, planned->bound.seconds() * (1 - 1e-9));
      EXPECT_LE(planned->run.seconds, 5);
      for (const PlannedTransfer& transfer : planned->transfers) {
        EXPECT_OK(Prove(*transfer.plan));
        EXPECT_GE(transfer.buffers, 1);
        EXPECT_LE(transfer.buffers, 16);
        EXPECT_EQ(transfer.buffers, transfer.buffers_needed);
      }
    }
  }
}

TEST(PlannedPipelineTest, AutoIsNoSlowerThanTheOthers) {
  ASSERT_OK_AND_ASSIGN(const PipelineDescription description, FromProto(ExamplePipeline(), {}));
  ASSERT_OK_AND_ASSIGN(const auto candidates,
                       ComparePipelineSchedules(description, ChoiceOf("auto")));
  std::set<std::string> names;
  double fastest[] = {1e9, 1e9};  // as they are, and delayed
  for (const v1::PipelineCandidate& candidate : candidates) {
    EXPECT_TRUE(
        names.insert(absl::StrCat(candidate.name(), candidate.delay_weight_gradients())).second);
    EXPECT_EQ(candidate.refused(), "") << candidate.name();
    EXPECT_GE(candidate.gap(), -1e-9);
    EXPECT_GT(candidate.peak_bytes(), 0);
    // Those that split the backward op anyway may be faster than those that don't.
    const bool splits = candidate.delay_weight_gradients() || candidate.name().starts_with("zb");
    fastest[splits] = std::min(fastest[splits], candidate.seconds());
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"1f1b0", "1f1b1", "eager_1f1b0", "gpipe0", "gpipe1",
                                            "zb_h20", "auto0", "auto1"}));
  EXPECT_EQ(names.count("zb_v0"), 0u);   // stages are placed otherwise
  EXPECT_EQ(names.count("zb_h21"), 0u);  // it is what it was
  ASSERT_EQ(candidates.back().name(), "auto");
  EXPECT_NEAR(candidates.back().seconds(), fastest[1], 1e-9);
  EXPECT_NEAR(candidates[candidates.size() - 2].seconds(), fastest[0], 1e-9);
  EXPECT_TRUE(std::ranges::any_of(candidates, &v1::PipelineCandidate::pareto));

  v1::PipelineChoice delayed = ChoiceOf("auto");
  delayed.set_delay_weight_gradients(true);
  ASSERT_OK_AND_ASSIGN(const auto only, ComparePipelineSchedules(description, delayed));
  EXPECT_TRUE(std::ranges::all_of(only, &v1::PipelineCandidate::delay_weight_gradients));
}

// Two sequences of four parts: no schedule for whole ones will do.
TEST(PlannedPipelineTest, SequencesInPartsHaveSchedulesOfTheirOwn) {
  v1::PipelineSpec spec = Chain(3, 8);
  spec.set_sequence_parts(4);
  ASSERT_OK_AND_ASSIGN(const PipelineDescription description, FromProto(spec, {}));
  ASSERT_OK_AND_ASSIGN(const auto candidates,
                       ComparePipelineSchedules(description, ChoiceOf("auto")));
  ASSERT_EQ(candidates.size(), 4u);
  EXPECT_EQ(candidates[0].name(), "sequence_split");
  EXPECT_EQ(candidates[1].name(), "sequence_split");
  EXPECT_LE(candidates[2].seconds(), candidates[0].seconds());
  for (const bool delay : {false, true}) {
    v1::PipelineChoice choice = ChoiceOf("auto");
    choice.set_delay_weight_gradients(delay);
    EXPECT_OK(PlanOf(spec, choice));
  }
  EXPECT_THAT(PlanOf(spec, ChoiceOf("1f1b")),
              IsRefused("1f1b: expected whole sequences, found them in 4 parts"));
  ASSERT_OK_AND_ASSIGN(const PlannedPointer whole, PlanOf(Chain(3, 8), ChoiceOf("1f1b")));
  v1::PipelineChoice file;
  file.set_schedule_file(*ToScheduleFile(*whole->ops));
  EXPECT_THAT(PlanOf(spec, file), IsRefused("expected 0B1 before 0B0"));

  // All parts of a sequence are held at once, 1500 bytes each.
  for (v1::PipelineRank& rank : *spec.mutable_ranks()) rank.set_device_bytes_max(4'200'000);
  EXPECT_THAT(PlanOf(spec, ChoiceOf("auto")),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("(4200304 bytes) for one sequence at a time")));
}

TEST(PlannedPipelineTest, ComparesSaysWhyAScheduleCannotBe) {
  v1::PipelineSpec spec = Chain(2, 4);
  for (v1::PipelineRank& rank : *spec.mutable_ranks()) rank.set_device_bytes_max(5 << 20);
  spec.mutable_stages(0)->set_input_gradient_bytes(1 << 20);
  ASSERT_OK_AND_ASSIGN(const PipelineDescription description, FromProto(spec, {}));
  ASSERT_OK_AND_ASSIGN(const auto candidates,
                       ComparePipelineSchedules(description, ChoiceOf("auto")));
  EXPECT_EQ(candidates[0].name(), "gpipe");
  EXPECT_THAT(candidates[0].refused(), HasSubstr("rank 0: expected at most 5.2 MB"));
  EXPECT_EQ(candidates[0].seconds(), 0);
  EXPECT_EQ(candidates[1].refused(), "");
}

TEST(PlannedPipelineTest, SaysTheSmallestMemoryThatWouldDo) {
  v1::PipelineSpec spec = Chain(2, 8);
  spec.mutable_stages(1)->set_static_bytes(10'000);
  // A message each way, of which a device has 1 MiB, activations and what is static.
  const int64_t least = 2 * (1 << 20) + 1500 + 10'000;
  spec.mutable_ranks(1)->set_device_bytes_max(least - 1);
  for (const char* name : {"auto", "1f1b"}) {
    EXPECT_THAT(PlanOf(spec, ChoiceOf(name)),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr(absl::StrCat("rank 1 has 2.1 MB and needs 2.1 MB (", least,
                                                " bytes) for one microbatch at a time"))));
  }
  spec.mutable_ranks(1)->set_device_bytes_max(least);
  for (const char* name : {"auto", "1f1b"}) {
    ASSERT_OK_AND_ASSIGN(const PlannedPointer planned, PlanOf(spec, ChoiceOf(name)));
    EXPECT_EQ(planned->proof.memory[1].bytes(), ByteCount(least));
    EXPECT_EQ(planned->transfers[0].buffers, 1);
    EXPECT_GT(planned->transfers[0].buffers_needed, 1);
    EXPECT_THAT(planned->Summary().warnings(),
                testing::Contains(HasSubstr("The edge from stage 0 to 1, forward, has memory for "
                                            "1 of the 3 messages")));
  }
}

TEST(PlannedPipelineTest, ReadsScheduleFiles) {
  ASSERT_OK_AND_ASSIGN(const PlannedPointer planned,
                       PlanOf(ExamplePipeline(), ChoiceOf("eager_1f1b")));
  v1::PipelineChoice choice = ChoiceOf("");
  choice.set_schedule_file(*ToScheduleFile(*planned->ops));
  ASSERT_OK_AND_ASSIGN(const PlannedPointer again, PlanOf(ExamplePipeline(), choice));
  EXPECT_EQ(again->schedule, planned->schedule);
  EXPECT_EQ(again->id, planned->id);
  EXPECT_EQ(again->schedule_name, "schedule file");
  choice.set_delay_weight_gradients(true);
  ASSERT_OK_AND_ASSIGN(const PlannedPointer delayed, PlanOf(ExamplePipeline(), choice));
  EXPECT_EQ(delayed->schedule, DelayWeightGradients(planned->schedule));
  EXPECT_NE(delayed->id, planned->id);

  v1::PipelineSpec other = ExamplePipeline();
  other.mutable_microbatches(0)->set_count(8);
  EXPECT_THAT(PlanOf(other, choice), IsRefused("schedule_file: expected 8 microbatches, found 16"));
  EXPECT_THAT(PlanOf(Chain(2, 16), choice), IsRefused("schedule_file: expected stages"));
  choice.set_schedule_file("{");
  EXPECT_THAT(PlanOf(other, choice), IsRefused("schedule_file: "));
}

TEST(PlannedPipelineTest, RefusesChoicesThatAreNone) {
  const auto chosen = [](auto change) {
    v1::PipelineChoice choice = ChoiceOf("1f1b");
    change(choice);
    return PlanOf(Chain(2, 4), choice).status();
  };
  EXPECT_THAT(chosen([](auto& c) { c.set_schedule("2f"); }), IsRefused("schedule: expected auto"));
  EXPECT_THAT(chosen([](auto& c) { c.set_schedule("zb_v"); }), IsRefused("zb_v: expected two"));
  EXPECT_THAT(chosen([](auto& c) { c.set_schedule_file("{}"); }),
              IsRefused("expected a name or a file"));
  EXPECT_THAT(chosen([](auto& c) { c.add_windows(2); }), IsRefused("windows: expected schedule"));
  EXPECT_THAT(chosen([](auto& c) { c.set_objective("fast"); }), IsRefused("objective: "));
  EXPECT_THAT(chosen([](auto& c) { c.set_transfer_model("wire"); }),
              IsRefused("transfer_model: expected latency, link, pair, nic, ports, blocking"));
  EXPECT_THAT(chosen([](auto& c) { c.set_search_ops_max(-1); }), IsRefused("search_ops_max: "));
}

// Both leave stage 0 at once, and share its hosts' ports: each has half of them, until one is
// there.
TEST(PlannedPipelineTest, EdgesOutOfOneHostShareItsPorts) {
  v1::PipelineSpec spec = Chain(3, 1);
  *spec.add_edges() = spec.edges(0);
  spec.mutable_edges(2)->set_to(2);
  spec.mutable_edges(2)->mutable_tensors(0)->set_destination_layout("[x, y]");
  spec.mutable_edges(0)->set_forward_seconds(3);
  spec.mutable_edges(1)->set_forward_seconds(0);
  spec.mutable_edges(2)->set_forward_seconds(4);
  const auto arrival = [&](StageIndex stage, const char* model) {
    const absl::StatusOr<PlannedPointer> planned = PlanOf(spec, ChoiceOf("1f1b", model));
    const OpTable& ops = *(*planned)->ops;
    return (*planned)->run.ops[ops.Forward(stage, 0)].begin;
  };
  EXPECT_DOUBLE_EQ(arrival(1, "latency"), 0.01 + 3);
  EXPECT_DOUBLE_EQ(arrival(2, "latency"), 0.01 + 4);
  EXPECT_DOUBLE_EQ(arrival(1, "ports"), 0.01 + 3 + 3);
  EXPECT_DOUBLE_EQ(arrival(2, "ports"), 0.01 + 3 + 4);
  ASSERT_OK_AND_ASSIGN(const PlannedPointer planned, PlanOf(spec, ChoiceOf("1f1b")));
  // Of 4 MiB to each, half comes from either host.
  EXPECT_EQ(planned->Summary().busiest_port_bytes(), 2 * (2 << 20));
}

TEST(PlannedPipelineTest, TheIdIsThatOfWhatWorkersMustAgreeOn) {
  const auto id_of = [](const v1::PipelineSpec& spec, const char* schedule) {
    return (*PlanOf(spec, ChoiceOf(schedule)))->id;
  };
  const v1::PipelineSpec spec = Chain(2, 4);
  EXPECT_EQ(id_of(spec, "1f1b"), id_of(spec, "1f1b"));
  EXPECT_NE(id_of(spec, "1f1b"), id_of(spec, "gpipe"));
  EXPECT_NE(id_of(spec, "1f1b"), id_of(Chain(2, 5), "1f1b"));
  EXPECT_NE(id_of(spec, "1f1b"), id_of(Chain(2, 4, 8), "1f1b"));
  v1::PipelineSpec elsewhere = spec;
  elsewhere.mutable_ranks(0)->mutable_inline_mesh()->set_devices("h0a.0-1,h0c.0-1");
  EXPECT_NE(id_of(spec, "1f1b"), id_of(elsewhere, "1f1b"));
}

TEST(PlannedPipelineTest, StopsWhenTheClientIsGone) {
  ASSERT_OK_AND_ASSIGN(PipelineDescription description, FromProto(ExamplePipeline(), {}));
  EXPECT_THAT(PlanPipeline(std::move(description), ChoiceOf("auto"), [] { return true; }),
              StatusIs(absl::StatusCode::kCancelled));
}

// The last microbatch is half as large as the others: so is what it takes.
TEST(PlannedPipelineTest, SmallerMicrobatchesTakeLess) {
  v1::PipelineSpec spec = Chain(2, 3);
  const auto add_half = [](v1::PipelineSpec& to) {
    to.add_microbatches()->set_count(1);
    to.mutable_microbatches(1)->set_samples(2);
  };
  ASSERT_OK_AND_ASSIGN(const PlannedPointer equal, PlanOf(spec, ChoiceOf("1f1b")));
  add_half(spec);
  ASSERT_OK_AND_ASSIGN(const PlannedPointer planned, PlanOf(spec, ChoiceOf("1f1b")));
  EXPECT_EQ(planned->profile.microbatch_scale, (std::vector<double>{1, 1, 1, 0.5}));
  ASSERT_EQ(planned->transfers.size(), 4u);
  EXPECT_EQ(planned->transfers[1].samples, 2);
  EXPECT_EQ(planned->transfers[1].buffers, 1);
  EXPECT_NE(planned->transfers[1].plan->id(), planned->transfers[0].plan->id());
  EXPECT_LT(planned->transfers[1].seconds, planned->transfers[0].seconds);
  const auto seconds = [](const TimeSpan& span) { return span.end - span.begin; };
  const OpTable& ops = *planned->ops;
  EXPECT_NEAR(seconds(planned->run.ops[ops.Forward(0, 2)]), 0.01, 1e-9);
  EXPECT_NEAR(seconds(planned->run.ops[ops.Forward(0, 3)]), 0.005, 1e-9);
  EXPECT_NEAR(seconds(planned->run.messages[ops.MessageOf(0, 3)]),
              planned->transfers[0].seconds / 2, 1e-9);
  EXPECT_GT(planned->run.seconds, equal->run.seconds);
  EXPECT_GE(planned->run.seconds, planned->bound.seconds());
  EXPECT_OK(PlanOf(spec, ChoiceOf("auto")));

  // The first may be the smaller one: times are given for it.
  v1::PipelineSpec reversed = Chain(2, 1, 2);
  reversed.add_microbatches()->set_count(3);
  reversed.mutable_microbatches(1)->set_samples(4);
  ASSERT_OK_AND_ASSIGN(const PlannedPointer larger, PlanOf(reversed, ChoiceOf("1f1b")));
  EXPECT_EQ(larger->profile.microbatch_scale, (std::vector<double>{0.5, 1, 1, 1}));
  EXPECT_DOUBLE_EQ(larger->profile.stages[0].forward_seconds, 0.02);
  EXPECT_EQ(larger->profile.stages[0].input_gradient_bytes, ByteCount(2000));
}

// Whatever the pipeline: what comes out is proven, no faster than its bound, and in its memory.
TEST(PlannedPipelineTest, RandomPipelinesAreProven) {
  ForEachSeed(40, [&](RandomSource& random) {
    const int stages = static_cast<int>(random.Between(1, 4));
    v1::PipelineSpec spec = Chain(stages, static_cast<int>(random.Between(1, 6)));
    for (v1::PipelineStage& stage : *spec.mutable_stages()) {
      stage.set_forward_seconds(static_cast<double>(random.Between(1, 8)) * 1e-4);
      if (random.OneIn(3)) stage.set_weight_gradient_seconds(0);
    }
    if (stages > 2 && random.OneIn(2)) {
      v1::PipelineEdge& skip = *spec.add_edges();
      skip = spec.edges(1);
      skip.set_from(0);
      skip.mutable_tensors(0)->set_source_layout("[-, x*y]");
    }
    if (random.OneIn(3)) {
      spec.add_microbatches()->set_count(static_cast<int>(random.Between(1, 3)));
      spec.mutable_microbatches(1)->set_samples(random.OneIn(2) ? 2 : 8);
    }
    const PlannedPointer free = *PlanOf(spec, ChoiceOf("1f1b"));
    for (v1::PipelineRank& rank : *spec.mutable_ranks()) {
      const int64_t most =
          std::ranges::max_element(free->proof.memory, {}, &RankMemory::bytes)->bytes().value();
      if (random.OneIn(2)) rank.set_device_bytes_max(most);
    }
    const std::string model(TransferModelName(kAllTransferModels[random.Below(6)]));
    for (const char* name : {"auto", "1f1b", "gpipe", "zb_h2"}) {
      v1::PipelineChoice choice = ChoiceOf(name, model);
      choice.set_delay_weight_gradients(random.OneIn(2));
      const absl::StatusOr<PlannedPointer> planned = PlanOf(spec, choice);
      if (absl::IsResourceExhausted(planned.status())) {
        EXPECT_TRUE(std::string(name) == "gpipe" || std::string(name) == "zb_h2");
        continue;
      }
      ASSERT_OK(planned);
      EXPECT_EQ(*ProvePipeline((*planned)->schedule, (*planned)->profile), (*planned)->proof);
      EXPECT_GE((*planned)->run.seconds, (*planned)->bound.seconds() * (1 - 1e-9));
    }
  });
}

}  // namespace
}  // namespace crossmesh
