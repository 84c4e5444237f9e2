#include "planner/redistribute/baselines/baselines.h"

#include "common/base/status_macros.h"
#include "planner/redistribute/atom_sizes.h"
#include "planner/redistribute/baselines/dtensor_greedy.h"
#include "planner/redistribute/baselines/normal_form.h"
#include "planner/redistribute/baselines/one_axis.h"
#include "planner/redistribute/baselines/replicate_then_slice.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

bool IsEven(const TypeSpace& space) {
  for (const LocalType* type : {&space.source(), &space.destination()}) {
    for (const std::vector<DimensionCut>& cuts : type->dimensions) {
      if (!cuts.empty() && cuts.front().stride == 0) return false;
    }
  }
  return true;
}

bool IsOfWholeAxes(const TypeSpace& space) {
  return std::ranges::all_of(space.atoms(), [&](const SubAxis& atom) {
    return atom.size == space.axes()[atom.axis].size;
  });
}

// On primes there always is one; on the atoms that the ends need there may be one of fewer bytes.
std::optional<Derivation> BetterNormalForm(std::shared_ptr<const TypeSpace> needed,
                                           const RedistributionRequest& request,
                                           const CollectiveCost& cost) {
  std::optional<Derivation> fine =
      NormalForm(std::make_shared<const TypeSpace>(request, PrimeAtoms(request, 1).front()), cost);
  std::optional<Derivation> coarse = NormalForm(std::move(needed), cost);
  if (!coarse.has_value() || (fine.has_value() && fine->bytes() <= coarse->bytes())) return fine;
  return coarse;
}

std::optional<Derivation> PlanBy(RedistributionBaseline baseline,
                                 const RedistributionRequest& request, const CollectiveCost& cost) {
  const auto needed = std::make_shared<const TypeSpace>(request, NeededAtoms(request));
  if (!IsEven(*needed)) return std::nullopt;
  switch (baseline) {
    case RedistributionBaseline::kReplicateThenSlice:
      return ReplicateThenSlice(needed, cost);
    case RedistributionBaseline::kDtensorGreedy:
      return IsOfWholeAxes(*needed) ? DtensorGreedy(needed, cost) : std::nullopt;
    case RedistributionBaseline::kOneAxis:
      return IsOfWholeAxes(*needed) ? OneAxis(needed, cost) : std::nullopt;
    case RedistributionBaseline::kNormalForm:
      return BetterNormalForm(needed, request, cost);
  }
  return std::nullopt;
}

}  // namespace

absl::string_view RedistributionBaselineName(RedistributionBaseline baseline) {
  switch (baseline) {
    case RedistributionBaseline::kReplicateThenSlice:
      return "replicate_then_slice";
    case RedistributionBaseline::kDtensorGreedy:
      return "dtensor_greedy";
    case RedistributionBaseline::kOneAxis:
      return "one_axis";
    case RedistributionBaseline::kNormalForm:
      return "normal_form";
  }
  return "unknown";
}

absl::StatusOr<Derivation> PlanBaseline(RedistributionBaseline baseline,
                                        const RedistributionRequest& request,
                                        const CollectiveCost& cost, StepStaging staging) {
  RETURN_IF_ERROR(Validate(request));
  std::optional<Derivation> derivation = PlanBy(baseline, request, cost);
  if (derivation.has_value()) return derivation->WithStaging(staging);
  return absl::UnimplementedError(absl::StrCat(
      "baseline ", RedistributionBaselineName(baseline),
      ": expected layouts that it knows, found lengths that do not divide, parts of axes, axes "
      "in another order than the mesh's, or partial sums"));
}

}  // namespace crossmesh
