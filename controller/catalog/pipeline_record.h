#pragma once

#include "crossmesh/v1/pipeline.pb.h"

#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {

// A pipeline as it was registered: named meshes are looked up when it is planned. Immutable.
struct PipelineRecord {
  v1::PipelineSpec spec;

  friend bool operator==(const PipelineRecord& a, const PipelineRecord& b) {
    return a.spec.SerializeAsString() == b.spec.SerializeAsString();
  }
};

std::string EncodePipeline(const PipelineRecord& pipeline);
// Internal: the bytes do not parse.
absl::StatusOr<PipelineRecord> DecodePipeline(const std::string& bytes);

}  // namespace crossmesh
