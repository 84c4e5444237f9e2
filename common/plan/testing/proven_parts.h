#pragma once

#include "common/base/check.h"
#include "common/plan/plan.h"
#include "common/plan/slicing.h"
#include "common/plan/worker_part.h"

#include <utility>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

// Of a specification that Plan::Create accepts.
inline Plan MakePlan(Plan::Spec spec) {
  auto plan = Plan::Create(std::move(spec));
  CHECK_OK(plan);
  return *std::move(plan);
}

// For workers that own these devices of the plan, which are all.
inline std::vector<WorkerPart> MakeParts(const Plan& plan,
                                         const std::vector<std::vector<DeviceId>>& devices) {
  auto parts = CutParts(plan, devices);
  CHECK_OK(parts);
  return *std::move(parts);
}

// As a worker proves it, with a slicing of its own.
inline absl::Status ProofOf(const WorkerPart& part) {
  auto slicing = Slicing::Create(part.tensors());
  CHECK_OK(slicing);
  return ProvePart(part, *slicing);
}

}  // namespace crossmesh
