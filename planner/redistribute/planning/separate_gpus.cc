#include "planner/redistribute/planning/separate_gpus.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/plan/slicing.h"

#include <algorithm>
#include <optional>

namespace crossmesh {
namespace {

// What the steps' devices need of each other, by their ranks in the whole table.
struct Need {
  std::vector<DeviceRank> holders;
  std::vector<DeviceRank> receivers;  // none of them a holder
};

absl::Status AddNeeds(const TensorTable& whole, const TensorTable& step, std::vector<Need>& needs) {
  ASSIGN_OR_RETURN(const Slicing slicing, Slicing::Create(step));
  const auto in_whole = [&](DeviceRank device) {
    const std::optional<DeviceRank> rank = whole.FindDevice(step.devices()[device]);
    CHECK(rank.has_value()) << "a step's device is none of the plan";
    return *rank;
  };
  for (ClassIndex c = 0; c < std::ssize(slicing.classes()); ++c) {
    Need need;
    const std::span<const DeviceRank> holders = slicing.holders(c);
    for (const DeviceRank device : holders) need.holders.push_back(in_whole(device));
    for (const DeviceRank device : slicing.receivers(c)) {
      if (!std::ranges::binary_search(holders, device)) need.receivers.push_back(in_whole(device));
    }
    if (!need.receivers.empty()) needs.push_back(std::move(need));
  }
  return absl::OkStatus();
}

// Takes those out that cannot do without others, or without whom others cannot do. Whether there
// were any.
bool TakeOut(const Need& need, std::vector<bool>& separate) {
  const auto is_separate = [&](DeviceRank device) { return separate[device]; };
  bool has_left = false;
  if (std::ranges::none_of(need.holders, is_separate)) {
    for (const DeviceRank device : need.receivers) {
      has_left |= separate[device];
      separate[device] = false;
    }
  }
  if (std::ranges::all_of(need.holders, is_separate) &&
      !std::ranges::all_of(need.receivers, is_separate)) {
    separate[need.holders.front()] = false;
    has_left = true;
  }
  return has_left;
}

}  // namespace

absl::StatusOr<std::vector<DeviceRank>> SeparateGpus(const TensorTable& whole,
                                                     std::span<const Course<StepTable>> courses,
                                                     const Topology& topology) {
  std::vector<Need> needs;
  for (const Course<StepTable>& course : courses) {
    for (const Course<StepTable>::Step& step : course.steps) {
      RETURN_IF_ERROR(AddNeeds(whole, step.move->tensors(), needs));
    }
  }
  std::vector<bool> separate;
  for (const DeviceId& device : whole.devices()) {
    separate.push_back(topology.FindGpu(device) != nullptr);
  }
  bool has_left = true;
  while (has_left) {
    has_left = false;
    for (const Need& need : needs) has_left |= TakeOut(need, separate);
  }
  std::vector<DeviceRank> gpus;
  for (DeviceRank device = 0; device < std::ssize(separate); ++device) {
    if (separate[device]) gpus.push_back(device);
  }
  return gpus;
}

}  // namespace crossmesh
