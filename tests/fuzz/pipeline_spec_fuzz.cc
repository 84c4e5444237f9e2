// The text of a pipeline, as the command line reads it, decoded as the controller does: what is
// accepted is within its limits and holds only layouts that fit.

#include "common/base/check.h"
#include "planner/pipeline/planning/microbatch_sizes.h"
#include "planner/pipeline/planning/pipeline_codec.h"
#include "tests/fuzz/fuzz_input.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/util/json_util.h>

namespace crossmesh {
namespace {

// A short text can stand for many microbatches.
constexpr int64_t kMicrobatchesMax = 10'000;

void CheckEdge(const PipelineDescription& pipeline, const PipelineDescription::Edge& edge) {
  CHECK(edge.from >= 0 && edge.from < edge.to && edge.to < std::ssize(pipeline.stages));
  const Mesh& source = *pipeline.ranks[pipeline.stages[edge.from].rank].mesh;
  const Mesh& destination = *pipeline.ranks[pipeline.stages[edge.to].rank].mesh;
  for (const PipelineDescription::Tensor& tensor : edge.tensors) {
    for (const MicrobatchSize& size : SizesOf(pipeline.samples)) {
      const absl::StatusOr<TensorSpec> spec = TensorOfSize(tensor, size.samples);
      CHECK_OK(spec);
      CHECK_OK(tensor.source.Validate(source, spec->shape));
      CHECK_OK(tensor.destination.Validate(destination, spec->shape));
    }
  }
}

}  // namespace

void FuzzOne(const uint8_t* data, size_t size) {
  static const google::protobuf::LogSilencer quiet;
  v1::PipelineSpec spec;
  const std::string text(TextOf(data, size));
  if (!google::protobuf::util::JsonStringToMessage(text, &spec).ok()) return;
  int64_t microbatches = 0;
  for (const auto& run : spec.microbatches()) microbatches += run.count();
  if (microbatches > kMicrobatchesMax) return;
  const absl::StatusOr<PipelineDescription> pipeline =
      FromProto(spec, std::vector<std::shared_ptr<const Mesh>>(spec.ranks_size()));
  if (!pipeline.ok()) return;
  CHECK(!pipeline->samples.empty());
  for (const PipelineDescription::Edge& edge : pipeline->edges) CheckEdge(*pipeline, edge);
}

}  // namespace crossmesh
