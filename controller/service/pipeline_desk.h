#pragma once

#include "controller/catalog/catalog.h"
#include "controller/pipeline/planning/pipeline_description.h"
#include "crossmesh/v1/pipeline.pb.h"

#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {

// Where specifications of pipelines become descriptions that can be planned: looks up what they
// name. Thread-safe.
class PipelineDesk {
 public:
  explicit PipelineDesk(Catalog& catalog) : catalog_(catalog) {}

  // Of a request with a `pipeline_source`. As below; NotFound names the pipeline.
  template <typename Request>
  absl::StatusOr<PipelineDescription> Open(const Request& request) {
    return request.has_inline_pipeline() ? Describe(request.inline_pipeline())
                                         : Find(request.pipeline());
  }

  // With the meshes that are registered under the names of ranks, and the current network where the
  // specification has none. NotFound names the rank and its mesh; InvalidArgument names the field.
  absl::StatusOr<PipelineDescription> Describe(const v1::PipelineSpec& spec);

 private:
  absl::StatusOr<PipelineDescription> Find(const std::string& name);

  Catalog& catalog_;
};

}  // namespace crossmesh
