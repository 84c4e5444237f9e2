#pragma once

#include "common/base/check.h"
#include "crossmesh/v1/pipeline.pb.h"
#include "planner/pipeline/planning/pipeline_codec.h"
#include "planner/pipeline/planning/planned_pipeline.h"

#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {

// A chain of stages, one on each rank, whose meshes are a.0,b.0, then c.0,d.0, and so on. What
// passes is split by samples at even ranks and by columns at odd ones, so that everybody sends to
// everybody.
inline v1::PipelineSpec SamplePipeline(const std::vector<int64_t>& samples, int stages = 2) {
  v1::PipelineSpec spec;
  spec.set_name("sample");
  for (int s = 0; s < stages; ++s) {
    const char host = static_cast<char>('a' + 2 * s);
    v1::Mesh& mesh = *spec.add_ranks()->mutable_inline_mesh();
    mesh.set_axes("x=2");
    mesh.set_devices(absl::StrCat(std::string(1, host), ".0,", std::string(1, host + 1), ".0"));
    v1::PipelineStage& stage = *spec.add_stages();
    stage.set_rank(s);
    stage.set_forward_seconds(0.01 * (s + 1));
    stage.set_input_gradient_seconds(0.01);
    stage.set_weight_gradient_seconds(0.01);
    if (s == 0) continue;
    v1::PipelineEdge& edge = *spec.add_edges();
    edge.set_from(s - 1);
    edge.set_to(s);
    v1::PipelineTensor& tensor = *edge.add_tensors();
    tensor.mutable_tensor()->set_name(absl::StrCat("hidden.", s - 1));
    tensor.mutable_tensor()->set_dtype("F32");
    tensor.mutable_tensor()->add_shape(samples.front());
    tensor.mutable_tensor()->add_shape(1024);
    tensor.set_batch_dimension(0);
    tensor.set_source_layout(s % 2 == 1 ? "[x, -]" : "[-, x]");
    tensor.set_destination_layout(s % 2 == 1 ? "[-, x]" : "[x, -]");
  }
  for (const int64_t of_one : samples) {
    v1::PipelineMicrobatches& one = *spec.add_microbatches();
    one.set_count(1);
    one.set_samples(of_one);
  }
  return spec;
}

inline absl::StatusOr<std::shared_ptr<const PlannedPipeline>> PlanSample(
    const v1::PipelineSpec& spec, const std::string& transfer_model = "") {
  absl::StatusOr<PipelineDescription> description = FromProto(spec, {});
  if (!description.ok()) return description.status();
  v1::PipelineChoice choice;
  choice.set_schedule("1f1b");
  choice.set_transfer_model(transfer_model);
  return PlanPipeline(*std::move(description), choice);
}

}  // namespace crossmesh
