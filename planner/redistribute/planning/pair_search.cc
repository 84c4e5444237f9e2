#include "planner/redistribute/planning/pair_search.h"

#include "common/base/status_macros.h"
#include "common/mesh/mesh.h"
#include "common/mesh/reduction.h"
#include "common/plan/step_collective.h"
#include "common/plan/tensor_table.h"
#include "planner/redistribute/derivation_proof.h"
#include "planner/redistribute/mesh_cost.h"
#include "planner/redistribute/planning/collective_choice.h"
#include "planner/redistribute/planning/common_axes.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::StatusOr<std::optional<RedistributionBaseline>> ParseMethod(const std::string& name) {
  if (name.empty()) return std::nullopt;
  for (const RedistributionBaseline method : kRedistributionBaselines) {
    if (name == RedistributionBaselineName(method)) return method;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("method: expected that of a baseline, found \"", name, "\""));
}

// Parts of the common axes in the place of a mesh's axes.
absl::StatusOr<RedistributionEnd> EndOn(const Placement& placement,
                                        const std::vector<std::vector<SubAxis>>& parts_of_axis,
                                        const std::vector<std::string>& partial,
                                        PartialReduction reduction) {
  ASSIGN_OR_RETURN(const RedistributionEnd of_mesh,
                   EndOf(placement.layout, placement.mesh.axes(), partial, reduction));
  RedistributionEnd end{.rule = of_mesh.rule};
  for (const std::vector<SubAxis>& axes : of_mesh.dimensions) {
    std::vector<SubAxis>& dimension = end.dimensions.emplace_back();
    std::vector<int64_t>& levels = end.levels.emplace_back();
    for (const SubAxis& axis : axes) {
      levels.push_back(axis.size);
      const std::vector<SubAxis>& parts = parts_of_axis[axis.axis];
      dimension.insert(dimension.end(), parts.begin(), parts.end());
    }
  }
  for (const PartialAxis& axis : of_mesh.partial) {
    for (const SubAxis& part : parts_of_axis[axis.part.axis]) {
      end.partial.push_back({part, reduction});
    }
  }
  return end;
}

// Where NCCL may add what the request reduces. A mean is one step of all summands.
void AllowSums(const RedistributionInputs& inputs, DataType type, PairSearch& search) {
  if (!search.options.cost.rings.has_value()) return;
  const std::vector<PartialAxis>& source = search.request.source.partial;
  int64_t summands = 1;
  for (const PartialAxis& axis : source) summands *= axis.part.size;
  for (const PartialAxis& axis : search.request.destination.partial) summands /= axis.part.size;
  const auto is = [&](PartialReduction kind) {
    return !source.empty() && source.front().reduction == kind;
  };
  const bool is_mean = is(PartialReduction::kMean);
  RingCost& rings = *search.options.cost.rings;
  rings.summands_min = is_mean ? summands : 0;
  rings.adds = (is_mean || is(PartialReduction::kSum)) &&
               inputs.reduction_order == kAnyReductionOrder &&
               NcclReduces({.divisor = is_mean ? summands : 1}, type, summands);
}

// Of meshes with more, one axis at a time has too many layouts to look at.
constexpr size_t kMethodAxesMax = 4;

bool Fits(const Derivation& derivation, const RedistributionOptions& options) {
  return derivation.peak_live_bytes() <= options.live_bytes_max.value_or(INT64_MAX) &&
         derivation.peak_local_bytes() <= options.local_bytes_max.value_or(INT64_MAX);
}

// What the budget has ended may be worse than what a method of the literature finds.
Derivation BestWithMethods(const PairSearch& search, Derivation best) {
  const RedistributionOptions& options = search.options;
  const auto cost_of = [&](const Derivation& derivation) {
    return options.objective == RedistributionObjective::kBytes
               ? static_cast<double>(derivation.bytes())
               : derivation.seconds();
  };
  for (const RedistributionBaseline method : kRedistributionBaselines) {
    const absl::StatusOr<Derivation> other =
        PlanBaseline(method, search.request, options.cost, options.staging);
    if (!other.ok() || !Fits(*other, options) || cost_of(*other) >= cost_of(best)) continue;
    best = other->WithOrigin(DerivationOrigin::kBudget);
  }
  return best;
}

}  // namespace

absl::StatusOr<Derivation> PairSearch::Find() const {
  if (method.has_value()) {
    ASSIGN_OR_RETURN(Derivation derivation,
                     PlanBaseline(*method, request, options.cost, options.staging));
    RETURN_IF_ERROR(ProveDerivation(derivation, {.staging = options.staging}));
    return derivation;
  }
  ASSIGN_OR_RETURN(RedistributionResult result, SearchRedistribution(request, options));
  Derivation best = std::move(result.derivation);
  // Collectives of NCCL are priced by the search alone.
  if (best.origin() == DerivationOrigin::kBudget && !options.cost.rings.has_value() &&
      request.axes.size() <= kMethodAxesMax) {
    best = BestWithMethods(*this, std::move(best));
  }
  RETURN_IF_ERROR(ProveDerivation(
      best, {.live_bytes_max = options.live_bytes_max, .staging = options.staging}));
  return best;
}

absl::StatusOr<PairSearches> PairSearches::Create(const ReshardRequest& request) {
  PairSearches searches(request);
  searches.may_use_collectives_ = MayUseCollectives(request);
  const RedistributionInputs& inputs = request.redistribution;
  if (!inputs.reduction.empty()) {
    ASSIGN_OR_RETURN(searches.reduction_, ParsePartialReduction(inputs.reduction));
  }
  ASSIGN_OR_RETURN(searches.method_, ParseMethod(inputs.method));
  if (inputs.objective.empty() || inputs.objective == "time") return searches;
  if (inputs.objective != "bytes") {
    return absl::InvalidArgumentError(
        absl::StrCat("objective: expected time or bytes, found \"", inputs.objective, "\""));
  }
  searches.objective_ = RedistributionObjective::kBytes;
  return searches;
}

absl::StatusOr<PairSearch> PairSearches::Of(int32_t group) const {
  const TensorTable& tensors = *request_.tensors;
  const TensorGroup& of = tensors.groups()[group];
  if (of.sent_as.has_value()) {
    return absl::InvalidArgumentError("expected a tensor that is not converted");
  }
  const Placement& source = tensors.PlacementOf(Side::kSource, group);
  const Placement& destination = tensors.PlacementOf(Side::kDestination, group);
  const std::optional<CommonAxes> common = FindCommonAxes(source.mesh, destination.mesh);
  if (!common.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expected meshes with the same devices in the same order, and axes that divide each "
        "other, found ",
        ToString(source.mesh), " and ", ToString(destination.mesh)));
  }
  const RedistributionInputs& inputs = request_.redistribution;
  PairSearch search{
      .request = {.axes = common->axes, .shape = of.shape, .item_bytes = ItemBytes(of.type)},
      .method = method_};
  ASSIGN_OR_RETURN(search.request.source,
                   EndOn(source, common->of_source, inputs.source_partial, reduction_));
  ASSIGN_OR_RETURN(search.request.destination, EndOn(destination, common->of_destination,
                                                     inputs.destination_partial, reduction_));
  if (!inputs.source_partial.empty()) RETURN_IF_ERROR(CheckReduction(of.type, {}));
  ASSIGN_OR_RETURN(const Mesh mesh, Mesh::Create(common->axes, source.mesh.devices()));
  search.options = {.objective = objective_,
                    .cost = CostOfMesh(mesh, request_.topology),
                    .relay = !inputs.no_relays};
  if (may_use_collectives_) {
    search.options.cost.rings = RingCostOfMesh(mesh, request_.topology);
    AllowSums(inputs, of.type, search);
  }
  return search;
}

}  // namespace crossmesh
