#include "planner/pipeline/planning/testing/planned_pipelines.h"

#include "planner/pipeline/planning/pipeline_codec.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

v1::PipelineChoice ChoiceOf(const std::string& schedule, const std::string& model) {
  v1::PipelineChoice choice;
  choice.set_schedule(schedule);
  choice.set_transfer_model(model);
  choice.set_search_ops_max(200'000);
  return choice;
}

absl::StatusOr<PlannedPointer> PlanOf(const v1::PipelineSpec& spec,
                                      const v1::PipelineChoice& choice) {
  absl::StatusOr<PipelineDescription> description = FromProto(spec, {});
  if (!description.ok()) return description.status();
  return PlanPipeline(*std::move(description), choice);
}

v1::PipelineSpec Chain(int stages, int microbatches, int64_t samples) {
  v1::PipelineSpec spec;
  for (int s = 0; s < stages; ++s) {
    v1::Mesh& mesh = *spec.add_ranks()->mutable_inline_mesh();
    mesh.set_axes(s % 2 == 0 ? "x=2,y=2" : "z=4");
    mesh.set_devices(absl::StrCat("h", s, "a.0-1,h", s, "b.0-1"));
    v1::PipelineStage& stage = *spec.add_stages();
    stage.set_rank(s);
    stage.set_forward_seconds(0.01);
    stage.set_input_gradient_seconds(0.01);
    stage.set_weight_gradient_seconds(0.01);
    stage.set_input_gradient_bytes(1000);
    stage.set_weight_gradient_bytes(500);
    if (s == 0) continue;
    v1::PipelineEdge& edge = *spec.add_edges();
    edge.set_from(s - 1);
    edge.set_to(s);
    v1::PipelineTensor& tensor = *edge.add_tensors();
    tensor.mutable_tensor()->set_name("hidden");
    tensor.mutable_tensor()->set_dtype("F32");
    tensor.mutable_tensor()->add_shape(samples);
    tensor.mutable_tensor()->add_shape(1 << 18);
    tensor.set_batch_dimension(0);
    tensor.set_source_layout(s % 2 == 1 ? "[x, y]" : "[-, z]");
    tensor.set_destination_layout(s % 2 == 1 ? "[-, z]" : "[x, y]");
  }
  spec.add_microbatches()->set_count(microbatches);
  spec.mutable_microbatches(0)->set_samples(samples);
  return spec;
}

v1::PipelineSpec DownAndUp(int microbatches, double pair_seconds) {
  v1::PipelineSpec spec = Chain(4, microbatches);
  spec.mutable_ranks()->DeleteSubrange(2, 2);
  spec.mutable_stages(2)->set_rank(1);
  spec.mutable_stages(3)->set_rank(0);
  // Layouts over the meshes of these ranks.
  spec.mutable_edges(1)->mutable_tensors(0)->set_destination_layout("[-, z]");
  spec.mutable_edges(2)->mutable_tensors(0)->set_source_layout("[-, z]");
  spec.mutable_edges(2)->mutable_tensors(0)->set_destination_layout("[x, y]");
  for (int stage = 0; stage < 4 && pair_seconds > 0; ++stage) {
    v1::PipelinePair& pair = *spec.add_pairs();
    pair.set_forward_stage(stage);
    pair.set_backward_stage(3 - stage);
    pair.set_seconds(pair_seconds);
  }
  return spec;
}

}  // namespace crossmesh
