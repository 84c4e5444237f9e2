#pragma once

#include "common/plan/plan.h"
#include "common/plan/testing/tables.h"

#include <string>
#include <vector>

namespace crossmesh {

// A plan in which classes go along chains of devices as a whole: the first class along the first
// chain, "a.0 > b.0 > b.1", and so on. `rest` has what a plan says beside tensors, relays and hops.
// Aborts when a text is wrong.
Plan ChainPlan(const TensorText& tensor, const std::vector<std::string>& chains,
               Plan::Spec rest = {});

}  // namespace crossmesh
