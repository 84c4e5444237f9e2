#include "worker/gpu/program/testing/device_programs.h"

#include "common/base/status_macros.h"
#include "common/plan/worker_part.h"
#include "worker/executor/prepared_part.h"

#include <utility>

namespace crossmesh {

absl::StatusOr<DevicePrograms> ProgramsOf(const Plan& plan, const GpuProgram::Options& options) {
  std::vector<std::vector<DeviceId>> each_alone;
  for (const DeviceId& device : plan.tensors().devices()) each_alone.push_back({device});
  ASSIGN_OR_RETURN(std::vector<WorkerPart> parts, CutParts(plan, each_alone));
  DevicePrograms programs;
  for (WorkerPart& part : parts) {
    ASSIGN_OR_RETURN(std::shared_ptr<const PreparedPart> prepared,
                     PreparedPart::Create(std::make_shared<const WorkerPart>(std::move(part))));
    ASSIGN_OR_RETURN(std::shared_ptr<const GpuProgram> program,
                     GpuProgram::Create(std::move(prepared), options));
    programs.push_back(std::move(program));
  }
  return programs;
}

}  // namespace crossmesh
