#include "planner/pipeline/schedules/period_law.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/ways.h"

#include <algorithm>
#include <cmath>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// A quotient this little above a whole number is that number.
constexpr double kRounding = 1e-9;

// R(i, j) for all j >= i.
std::vector<double> RoundTrips(const PipelineProfile& chain, BackwardForm form, StageIndex i) {
  std::vector<double> trips;
  double trip = form == BackwardForm::kSplit ? chain.stages[i].weight_gradient_seconds : 0;
  for (StageIndex j = i; j < std::ssize(chain.stages); ++j) {
    trip += chain.stages[j].forward_seconds + BackwardSeconds(chain.stages[j], form);
    trips.push_back(trip);
    if (j + 1 == std::ssize(chain.stages)) break;
    trip += chain.edges[j].forward_seconds + chain.edges[j].backward_seconds;
  }
  return trips;
}

// Rounded up; a period of nothing, of stages that take no time, is within others as often as can
// be.
int32_t PeriodsIn(double seconds, double period) {
  constexpr double kMost = 1 << 16;
  if (seconds == 0) return 0;
  return static_cast<int32_t>(std::min(std::ceil(seconds / period - kRounding), kMost));
}

}  // namespace

absl::Status CheckChain(const PipelineProfile& profile) {
  RETURN_IF_ERROR(Validate(profile));
  const auto error = [](absl::string_view found) {
    return absl::InvalidArgumentError(
        absl::StrCat("pipeline: expected a chain of stages on ranks of their own, found ", found));
  };
  for (StageIndex s = 0; s < std::ssize(profile.stages); ++s) {
    if (profile.stages[s].rank == s) continue;
    return error(absl::StrCat("stage ", s, " on rank ", profile.stages[s].rank));
  }
  if (profile.edges.size() + 1 != profile.stages.size()) {
    return error(
        absl::StrCat(profile.edges.size(), " edges for ", profile.stages.size(), " stages"));
  }
  for (StageIndex s = 0; s < std::ssize(profile.edges); ++s) {
    const EdgeProfile& edge = profile.edges[s];
    if (edge.from == s && edge.to == s + 1) continue;
    return error(absl::StrCat("edge ", s, " from stage ", edge.from, " to ", edge.to));
  }
  return absl::OkStatus();
}

double LongestStageSeconds(const PipelineProfile& profile) {
  return std::ranges::max_element(profile.stages, {}, &StageProfile::seconds)->seconds();
}

absl::StatusOr<double> PeriodOfWindows(const PipelineProfile& chain, BackwardForm form,
                                       std::span<const int32_t> windows) {
  RETURN_IF_ERROR(CheckChain(chain));
  if (windows.size() != chain.stages.size() || !std::ranges::is_sorted(windows, std::greater<>())) {
    return absl::InvalidArgumentError(
        absl::StrCat("windows: expected ", chain.stages.size(),
                     ", each at least as large as the next, found others"));
  }
  double period = 0;
  for (StageIndex i = 0; i < std::ssize(windows); ++i) {
    const std::vector<double> trips = RoundTrips(chain, form, i);
    for (StageIndex j = i; j < std::ssize(windows); ++j) {
      period = std::max(period, trips[j - i] / (windows[i] - windows[j] + 1));
    }
  }
  return period;
}

absl::StatusOr<std::vector<int32_t>> SmallestWindows(const PipelineProfile& chain,
                                                     BackwardForm form, double period) {
  RETURN_IF_ERROR(CheckChain(chain));
  if (const double longest = LongestStageSeconds(chain); !(period >= longest * (1 - kRounding))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "period: expected at least the longest work of a stage, ", longest, ", found ", period));
  }
  std::vector<int32_t> windows(chain.stages.size(), 1);
  // From the last stage on: a window depends on those of all later stages.
  for (StageIndex i = static_cast<StageIndex>(windows.size()) - 2; i >= 0; --i) {
    const std::vector<double> trips = RoundTrips(chain, form, i);
    for (StageIndex j = i + 1; j < std::ssize(windows); ++j) {
      windows[i] = std::max(windows[i], windows[j] - 1 + PeriodsIn(trips[j - i], period));
    }
  }
  return windows;
}

absl::StatusOr<std::vector<int32_t>> FastestWindows(const PipelineProfile& chain, BackwardForm form,
                                                    std::span<const int32_t> windows_max) {
  constexpr double kPrecision = 1e-6;
  RETURN_IF_ERROR(CheckChain(chain));
  if (windows_max.size() != chain.stages.size() || std::ranges::min(windows_max) < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("windows: expected ", chain.stages.size(), " of at least 1, found others"));
  }
  const auto fits = [&](const std::vector<int32_t>& windows) {
    return std::ranges::equal(windows, windows_max, std::ranges::less_equal());
  };
  // Between the longest stage, which no period is below, and one microbatch at a time: windows grow
  // as the period shrinks, so halving finds the shortest that fits.
  double low = LongestStageSeconds(chain);
  ASSIGN_OR_RETURN(std::vector<int32_t> windows, SmallestWindows(chain, form, low));
  if (fits(windows)) return windows;
  // One microbatch after the other needs no window above 1.
  double high = low;
  for (StageIndex i = 0; i < std::ssize(chain.stages); ++i) {
    high = std::max(high, RoundTrips(chain, form, i).back());
  }
  ASSIGN_OR_RETURN(windows, SmallestWindows(chain, form, high));
  while (high - low > kPrecision * low) {
    const double middle = (low + high) / 2;
    ASSIGN_OR_RETURN(std::vector<int32_t> tried, SmallestWindows(chain, form, middle));
    if (fits(tried)) {
      high = middle;
      windows = std::move(tried);
    } else {
      low = middle;
    }
  }
  return windows;
}

}  // namespace crossmesh
