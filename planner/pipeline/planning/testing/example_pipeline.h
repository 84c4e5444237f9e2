#pragma once

#include "common/base/check.h"
#include "common/testing/paths.h"
#include "crossmesh/v1/pipeline.pb.h"

#include <google/protobuf/util/json_util.h>

namespace crossmesh {

// That of examples/pipeline.json, to be changed.
inline v1::PipelineSpec ExamplePipeline() {
  v1::PipelineSpec spec;
  const auto read = google::protobuf::util::JsonStringToMessage(
      ReadTextFile(SourcePath("examples/pipeline.json")), &spec);
  CHECK(read.ok()) << read.ToString();
  return spec;
}

}  // namespace crossmesh
