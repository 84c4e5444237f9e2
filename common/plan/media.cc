#include "common/plan/media.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/plan/course.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// `Hops` are the hops of one relay.
template <typename Hops>
absl::Status ProveRelay(int64_t relay, const Hops& hops, const std::vector<DeviceRank>& over_gpus,
                        const TensorTable& tensors) {
  const auto is_over_gpus = [&](const auto& hop) {
    return std::ranges::binary_search(over_gpus, hop.to);
  };
  const auto other = std::ranges::find_if(
      hops, [&](const auto& hop) { return is_over_gpus(hop) != is_over_gpus(hops.front()); });
  if (other == hops.end()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("relay ", relay, ": expected receivers that one medium serves, found ",
                   ToString(tensors.devices()[hops.front().to]),
                   is_over_gpus(*other) ? " by host memory and " : " over GPUs and ",
                   ToString(tensors.devices()[other->to]),
                   is_over_gpus(*other) ? " over GPUs" : " by host memory"));
}

absl::Status ProveAlone(bool m2n, bool broadcasts) {
  if (!m2n && !broadcasts) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("receivers over GPUs in a plan with host memory: expected relays, found ",
                   m2n ? "NCCL M2N" : "broadcast groups"));
}

const std::vector<Hop>& HopsOf(const Plan& move) { return move.hops(); }
const std::vector<WorkerPart::PartHop>& HopsOf(const WorkerPart& move) { return move.spec().hops; }

// `Move` is a plan or a part of one, with a step's.
template <typename Move>
absl::Status ProveStep(const Move& whole, const typename Course<Move>::Step& step) {
  const TensorTable& table = step.move->tensors();
  const std::vector<DeviceRank>& over_gpus = whole.spec().over_gpus;
  if (!step.move->spec().over_gpus.empty()) {
    return absl::InternalError(absl::StrCat("expected devices that the plan's media serve, found ",
                                            step.move->spec().over_gpus.size(), " of its own"));
  }
  if (over_gpus.empty()) return absl::OkStatus();
  if (step.collective.has_value()) {
    return absl::InternalError(absl::StrCat("beside host memory: expected relays, found ",
                                            StepCollectiveName(*step.collective)));
  }
  if (step.adds_own) {
    return absl::InternalError(
        "beside host memory: expected sums in one step, found a ring of them");
  }
  std::vector<bool> is_over_gpus;
  for (const DeviceId& device : table.devices()) {
    const std::optional<DeviceRank> rank = whole.tensors().FindDevice(device);
    is_over_gpus.push_back(rank.has_value() && std::ranges::binary_search(over_gpus, *rank));
  }
  for (const auto& hop : HopsOf(*step.move)) {
    if (is_over_gpus[hop.from] == is_over_gpus[hop.to]) continue;
    return absl::InternalError(absl::StrCat(
        "expected hops that stay over GPUs or in host memory, found one from ",
        ToString(table.devices()[hop.from]), " to ", ToString(table.devices()[hop.to])));
  }
  return absl::OkStatus();
}

template <typename Move>
absl::Status ProveCourseMedia(const Move& whole) {
  for (size_t c = 0; c < whole.courses().size(); ++c) {
    const Course<Move>& course = whole.courses()[c];
    for (size_t k = 0; k < course.steps.size(); ++k) {
      RETURN_IF_ERROR(
          At(absl::StrCat("media of course ", c, ", step ", k), ProveStep(whole, course.steps[k])));
    }
  }
  return absl::OkStatus();
}

absl::Status ProveServed(const WorkerPart& part, DeviceRank device) {
  if (part.Serves(device)) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("half of a worker's part: expected relays and copies to devices that its medium "
                   "serves, found ",
                   ToString(part.tensors().devices()[device])));
}

}  // namespace

absl::Status ProveMedia(const Plan& plan) {
  RETURN_IF_ERROR(ProveCourseMedia(plan));
  const Plan::Spec& spec = plan.spec();
  if (spec.over_gpus.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(ProveAlone(spec.m2n, spec.broadcast_groups.size() > 0));
  for (size_t r = 0; r < spec.relays.size(); ++r) {
    RETURN_IF_ERROR(ProveRelay(static_cast<int64_t>(r), plan.hops(spec.relays[r]), spec.over_gpus,
                               plan.tensors()));
  }
  return absl::OkStatus();
}

absl::Status ProveMedia(const WorkerPart& part) {
  RETURN_IF_ERROR(ProveCourseMedia(part));
  const WorkerPart::Spec& spec = part.spec();
  if (spec.over_gpus.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(ProveAlone(spec.m2n, !spec.broadcast_groups.empty()));
  for (const WorkerPart::PartRelay& relay : spec.relays) {
    const auto hops = std::span(spec.hops).subspan(relay.first_hop, relay.hop_count);
    RETURN_IF_ERROR(ProveRelay(relay.relay, hops, spec.over_gpus, part.tensors()));
    RETURN_IF_ERROR(ProveServed(part, hops.front().to));
  }
  for (const WorkerPart::PartCopy& copy : spec.copies) {
    RETURN_IF_ERROR(ProveServed(part, copy.device));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
