#include "planner/redistribute/planning/group_routes.h"

#include "common/base/count_text.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/plan/tensor_table.h"
#include "planner/redistribute/planning/lowering.h"
#include "planner/redistribute/planning/pair_search.h"

#include <algorithm>
#include <iterator>
#include <memory>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::StatusOr<GroupRoute> RouteOf(const ReshardRequest& request, PairSearch search,
                                   RouteMedia media, int32_t group) {
  if (media == RouteMedia::kMessages) search.options.cost.rings.reset();
  ASSIGN_OR_RETURN(Derivation derivation, search.Find());
  GroupRoute route{.group = group};
  route.derivation = std::make_unique<const Derivation>(std::move(derivation));
  route.lowering = std::make_unique<const Lowering>(*route.derivation);
  if (request.redistribution.release_source) {
    const TypeSpace& space = route.derivation->space();
    route.tile_bytes =
        std::max(space.LocalBytes(space.source()), space.LocalBytes(space.destination()));
  }
  return route;
}

}  // namespace

absl::StatusOr<GroupRoutes> GroupRoutes::Find(const ReshardRequest& request, RouteMedia media,
                                              CancelCheck cancelled) {
  const TensorTable& tensors = *request.tensors;
  ASSIGN_OR_RETURN(const PairSearches searches, PairSearches::Create(request));
  std::map<int32_t, GroupRoute> routes;
  for (int32_t group = 0; group < std::ssize(tensors.groups()); ++group) {
    if (tensors.tensors_in_group(group) == 0) continue;
    absl::StatusOr<PairSearch> search = searches.Of(group);
    RETURN_IF_ERROR(At(tensors.NameOf(group), search.status()));
    absl::StatusOr<GroupRoute> route = RouteOf(request, *std::move(search), media, group);
    RETURN_IF_ERROR(At(tensors.NameOf(group), route.status()));
    routes.emplace(group, *std::move(route));
    RETURN_IF_ERROR(CheckWanted(cancelled));
  }
  for (int32_t t = 0; t < std::ssize(tensors.group_of_tensor()); ++t) {
    const int32_t group = tensors.group_of_tensor()[t];
    if (group >= 0) routes.at(group).tensors.push_back(t);
  }
  return GroupRoutes(std::move(routes));
}

std::vector<const GroupRoute*> GroupRoutes::all() const {
  std::vector<const GroupRoute*> routes;
  for (const auto& [group, route] : routes_) routes.push_back(&route);
  return routes;
}

bool GroupRoutes::are_single_steps() const {
  return std::ranges::all_of(
      routes_, [](const auto& entry) { return entry.second.lowering->step_count() == 1; });
}

bool GroupRoutes::IsSameAs(const GroupRoutes& other) const {
  const auto kind_and_end = [](const RedistributionStep& step) {
    return std::pair(step.kind, step.after);
  };
  return std::ranges::equal(routes_, other.routes_, [&](const auto& a, const auto& b) {
    return std::ranges::equal(a.second.derivation->steps(), b.second.derivation->steps(), {},
                              kind_and_end, kind_and_end);
  });
}

std::string GroupRoutes::StepCounts() const {
  std::map<int, int64_t> tensors_by_steps;
  for (const auto& [group, route] : routes_) {
    tensors_by_steps[route.lowering->step_count()] += std::ssize(route.tensors);
  }
  std::string text;
  for (const auto& [steps, tensors] : tensors_by_steps) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", CountText(tensors, "tensor", "tensors"),
                    " in ", CountText(steps, "step", "steps"));
  }
  return text;
}

std::string GroupRoutes::InOneStep() const {
  int64_t tensors = 0;
  for (const auto& [group, route] : routes_) tensors += std::ssize(route.tensors);
  return absl::StrCat(CountText(tensors, "tensor", "tensors"), " in 1 step");
}

}  // namespace crossmesh
