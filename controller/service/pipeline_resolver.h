#pragma once

#include "controller/catalog/catalog.h"
#include "crossmesh/v1/pipeline.pb.h"
#include "planner/pipeline/planning/pipeline_description.h"

#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Where specifications of pipelines become descriptions that can be planned: looks up what they
// name. Thread-safe.
class PipelineResolver {
 public:
  explicit PipelineResolver(Catalog& catalog) : catalog_(catalog) {}

  // Of a request with a `pipeline_source`. As below; NotFound names the pipeline; InvalidArgument:
  // there is no source.
  template <typename Request>
  absl::StatusOr<PipelineDescription> Open(const Request& request) {
    switch (request.pipeline_source_case()) {
      case Request::kPipeline:
        return Find(request.pipeline());
      case Request::kInlinePipeline:
        return Describe(request.inline_pipeline());
      case Request::PIPELINE_SOURCE_NOT_SET:
        break;
    }
    return absl::InvalidArgumentError(
        "pipeline_source: expected the name of a pipeline or a specification, found neither");
  }

  // With the meshes that are registered under the names of ranks, and the current network where the
  // specification has none. NotFound names the rank and its mesh; InvalidArgument names the field.
  absl::StatusOr<PipelineDescription> Describe(const v1::PipelineSpec& spec);

 private:
  absl::StatusOr<PipelineDescription> Find(const std::string& name);

  Catalog& catalog_;
};

}  // namespace crossmesh
