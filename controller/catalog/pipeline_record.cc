#include "controller/catalog/pipeline_record.h"

#include <absl/status/status.h>

namespace crossmesh {

std::string EncodePipeline(const PipelineRecord& pipeline) {
  return pipeline.spec.SerializeAsString();
}

absl::StatusOr<PipelineRecord> DecodePipeline(const std::string& bytes) {
  PipelineRecord pipeline;
  if (!pipeline.spec.ParseFromString(bytes)) return absl::InternalError("bytes do not parse");
  return pipeline;
}

}  // namespace crossmesh
