#pragma once

#include "common/base/check.h"
#include "common/testing/paths.h"
#include "crossmesh/v1/pipeline.pb.h"

#include <string>

#include <google/protobuf/util/json_util.h>

namespace crossmesh {

inline v1::PipelineSpec PipelineOf(const std::string& json) {
  v1::PipelineSpec spec;
  const auto read = google::protobuf::util::JsonStringToMessage(json, &spec);
  CHECK(read.ok()) << read.ToString();
  return spec;
}

// That of examples/pipeline.json, to be changed.
inline v1::PipelineSpec ExamplePipeline() {
  return PipelineOf(ReadTextFile(SourcePath("examples/pipeline.json")));
}

}  // namespace crossmesh
