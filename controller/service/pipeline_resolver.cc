#include "controller/service/pipeline_resolver.h"

#include "common/base/status_macros.h"
#include "common/mesh/mesh.h"
#include "planner/pipeline/planning/pipeline_codec.h"

#include <memory>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::StatusOr<PipelineDescription> PipelineResolver::Find(const std::string& name) {
  ASSIGN_OR_RETURN(const Registered<PipelineRecord> pipeline, catalog_.pipelines.Get(name));
  return Describe(pipeline.value->spec);
}

absl::StatusOr<PipelineDescription> PipelineResolver::Describe(const v1::PipelineSpec& spec) {
  std::vector<std::shared_ptr<const Mesh>> named(spec.ranks_size());
  for (int rank = 0; rank < spec.ranks_size(); ++rank) {
    if (!spec.ranks(rank).has_mesh()) continue;
    const absl::StatusOr<Registered<Mesh>> mesh = catalog_.meshes.Get(spec.ranks(rank).mesh());
    if (!mesh.ok()) {
      return absl::Status(mesh.status().code(),
                          absl::StrCat("ranks[", rank, "]: ", mesh.status().message()));
    }
    named[rank] = mesh->value;
  }
  ASSIGN_OR_RETURN(PipelineDescription description, FromProto(spec, named));
  if (!description.topology.has_value()) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const NetworkDescription> network,
                     catalog_.network.Get());
    description.topology = network->topology;
  }
  return description;
}

}  // namespace crossmesh
