#include "planner/layers/layer_transfer_planner.h"

#include "common/base/status_macros.h"
#include "common/mesh/manifest.h"
#include "common/plan/course.h"
#include "common/plan/proof.h"
#include "planner/redistribute/planning/course_draft.h"
#include "planner/redistribute/planning/plan_redistribution.h"
#include "planner/reshard/plan_reshard.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

// A message is prepared as one: its course has one instance, and all memory of its own.
constexpr CourseSizes kOneInstance = {
    .array_bytes = TensorTable::kSlotBytesMax, .instances = 1, .buffers = 1};

int32_t PlacementOf(const Mesh& mesh, const Layout& layout, std::vector<Placement>& placements) {
  const auto found = std::ranges::find(placements, layout, &Placement::layout);
  const auto index = static_cast<int32_t>(found - placements.begin());
  if (found == placements.end()) placements.push_back({.mesh = mesh, .layout = layout});
  return index;
}

int64_t HopsOf(const Plan& plan) {
  if (!plan.has_courses()) return std::ssize(plan.hops());
  int64_t hops = 0;
  for (const Course<Plan>& course : plan.courses()) {
    for (const auto& step : course.steps) hops += std::ssize(step.move->hops());
  }
  return hops;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Plan>> LayerTransferPlanner::PlanOf(
    const LayerProgram::Transfer& transfer) {
  ASSIGN_OR_RETURN(TensorTable table, TensorsOf(transfer));
  const auto tensors = std::make_shared<const TensorTable>(std::move(table));
  const bool is_inside = program_.from(transfer) == program_.to(transfer);
  std::pair<std::string, std::string> key = {
      tensors->digest().ToString(),
      absl::StrCat(is_inside, " ", ReductionKindName(transfer.reduction), " ",
                   absl::StrJoin(transfer.partial, " "))};
  std::shared_ptr<const Plan>& plan = plans_[std::move(key)];
  if (plan != nullptr) return plan;
  ASSIGN_OR_RETURN(Plan made, Make(transfer, tensors));
  hops_ += HopsOf(made);
  if (hops_ > Plan::kHopsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("hops of this transfer and those before it: ", "expected at most ",
                     Plan::kHopsMax, " together, found ", hops_));
  }
  RETURN_IF_ERROR(Prove(made, ProofLimits(), cancelled_).status());
  plan = std::make_shared<const Plan>(std::move(made));
  return plan;
}

absl::StatusOr<Plan> LayerTransferPlanner::Make(const LayerProgram::Transfer& transfer,
                                                std::shared_ptr<const TensorTable> tensors) const {
  RETURN_IF_ERROR(CheckWanted(cancelled_));
  // Transfers run beside others, with whose many streams a ring's one shares each port.
  ReshardRequest request{
      .tensors = std::move(tensors), .topology = topology_, .beside = Beside::kTransfers};
  if (program_.from(transfer) != program_.to(transfer)) return PlanReshard(request, cancelled_);
  ReshardRequest by_steps = request;
  by_steps.strategy = Strategy::kRedistribute;
  by_steps.redistribution.source_partial = transfer.partial;
  by_steps.redistribution.reduction = std::string(ReductionKindName(transfer.reduction));
  absl::StatusOr<Plan> plan = PlanRedistribution(by_steps, cancelled_, kOneInstance);
  const bool is_one = plan.ok() && (!plan->has_courses() || plan->courses().size() == 1);
  if (is_one || absl::IsCancelled(plan.status())) return plan;
  // What the search has no steps for, or other steps for each tensor, goes in one move.
  if (transfer.partial.empty()) return PlanReshard(request, cancelled_);
  RETURN_IF_ERROR(plan.status());
  return absl::InvalidArgumentError(
      absl::StrCat("expected tensors that take the same steps together, found ",
                   plan->courses().size(), " groups of them; each can be a transfer of its own"));
}

// Tensors are called by their place, so that equal transfers have equal tables.
absl::StatusOr<TensorTable> LayerTransferPlanner::TensorsOf(
    const LayerProgram::Transfer& transfer) const {
  const Mesh& from = *program_.ranks[program_.from(transfer)].mesh;
  const Mesh& to = *program_.ranks[program_.to(transfer)].mesh;
  TensorTable::Spec spec;
  std::vector<TensorSpec> tensors;
  for (const LayerProgram::Tensor& tensor : transfer.tensors) {
    const TensorGroup group = {
        .shape = tensor.tensor.shape,
        .type = tensor.tensor.type,
        .source = PlacementOf(from, tensor.source, spec.sources),
        .destination = PlacementOf(to, tensor.destination, spec.destinations)};
    const auto known = std::ranges::find(spec.groups, group);
    spec.group_of_tensor.push_back(static_cast<int32_t>(known - spec.groups.begin()));
    if (known == spec.groups.end()) {
      spec.groups.push_back(group);
      spec.names.push_back(tensor.tensor.name);
    }
    tensors.push_back(tensor.tensor);
    tensors.back().name = absl::StrCat(tensors.size() - 1);
  }
  ASSIGN_OR_RETURN(const Manifest manifest, Manifest::Create(std::move(tensors)));
  spec.manifest = manifest.digest();
  return TensorTable::Create(std::move(spec));
}

}  // namespace crossmesh
