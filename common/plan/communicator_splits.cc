#include "common/plan/communicator_splits.h"

#include "common/plan/course_tables.h"
#include "common/plan/step_collective.h"
#include "common/plan/tensor_table.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

CommunicatorSplit SplitFor(const TensorTable& whole, const TensorTable& step,
                           const GroupedCollective& collective) {
  CommunicatorSplit split = collective.groups;
  for (std::vector<DeviceRank>& group : split) {
    for (DeviceRank& device : group) device = *whole.FindDevice(step.devices()[device]);
  }
  std::vector<DeviceRank> all(whole.devices().size());
  std::iota(all.begin(), all.end(), 0);
  return split == CommunicatorSplit{all} ? CommunicatorSplit() : split;
}

std::vector<CommunicatorSplit> SplitsOf(const TensorTable& whole,
                                        std::span<const CourseTables> courses) {
  std::vector<CommunicatorSplit> splits;
  for (const CourseTables& course : courses) {
    for (const CourseTables::Step& step : course.steps) {
      if (!step.collective.has_value()) continue;
      const std::optional<GroupedCollective> found =
          FindStepCollective(*step.table, step.reduction);
      if (!found.has_value()) continue;
      CommunicatorSplit split = SplitFor(whole, *step.table, *found);
      if (!split.empty() && std::ranges::count(splits, split) == 0) {
        splits.push_back(std::move(split));
      }
    }
  }
  return splits;
}

absl::Status ProveSplits(const TensorTable& whole, std::span<const CourseTables> courses) {
  const std::vector<CommunicatorSplit> splits = SplitsOf(whole, courses);
  if (std::ssize(splits) <= kCommunicatorSplitsMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("collectives: expected at most ", kCommunicatorSplitsMax,
                   " splits of the communicator into groups, found ", splits.size()));
}

}  // namespace crossmesh
