#pragma once

#include "client/client.h"
#include "crossmesh/v1/pipeline_service.pb.h"

#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {

// The pipeline with what only the controller knows put into it: meshes that are given by name, and
// the network. As GetMesh and GetNetwork.
absl::StatusOr<v1::PipelineSpec> Described(Client& client, v1::PipelineSpec spec);

// What was measured of the run's last complete iteration beside what was planned, as DrawPicture
// takes it. The plan is made again from `spec`, which is Described. FailedPrecondition: no
// iteration is complete, or it has too many ops for their times to be told, or the plan is another
// one, because meshes or the network have changed since.
absl::StatusOr<std::string> MeasuredPicture(const v1::PipelineSpec& spec,
                                            const v1::PipelineChoice& choice,
                                            const v1::PipelineRun& run);

}  // namespace crossmesh
