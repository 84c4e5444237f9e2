#include "worker/gpu/compiler/testing/compiled_parts.h"

#include "common/base/status_macros.h"
#include "common/plan/worker_part.h"
#include "worker/executor/prepared_part.h"

#include <utility>

namespace crossmesh {

absl::StatusOr<CompiledParts> CompiledPartsOf(const Plan& plan,
                                              const CompiledPart::Options& options) {
  std::vector<std::vector<DeviceId>> each_alone;
  for (const DeviceId& device : plan.tensors().devices()) each_alone.push_back({device});
  ASSIGN_OR_RETURN(std::vector<WorkerPart> parts, CutParts(plan, each_alone));
  CompiledParts compiled_parts;
  for (WorkerPart& part : parts) {
    ASSIGN_OR_RETURN(std::shared_ptr<const PreparedPart> prepared,
                     PreparedPart::Create(std::make_shared<const WorkerPart>(std::move(part))));
    ASSIGN_OR_RETURN(std::shared_ptr<const CompiledPart> compiled,
                     CompiledPart::Create(std::move(prepared), options));
    compiled_parts.push_back(std::move(compiled));
  }
  return compiled_parts;
}

}  // namespace crossmesh
