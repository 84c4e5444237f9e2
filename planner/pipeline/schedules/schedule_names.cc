#include "planner/pipeline/schedules/schedule_names.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/memory.h"
#include "planner/pipeline/schedules/controllable_memory.h"
#include "planner/pipeline/schedules/dual_pipe.h"
#include "planner/pipeline/schedules/interleaved.h"
#include "planner/pipeline/schedules/looped_bfs.h"
#include "planner/pipeline/schedules/period_law.h"
#include "planner/pipeline/schedules/placement.h"
#include "planner/pipeline/schedules/sequence_split.h"
#include "planner/pipeline/schedules/window_order.h"
#include "planner/pipeline/schedules/zero_bubble.h"
#include "planner/pipeline/schedules/zero_bubble_v.h"

#include <algorithm>
#include <array>
#include <optional>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

// How a schedule wants stages placed.
struct PlacementRule {
  absl::string_view text;
  RankIndex (*rank_of)(StageIndex stage, int32_t ranks) = nullptr;
  bool (*fits)(int64_t stages, int64_t ranks) = nullptr;
};

constexpr bool AreTwoToARank(int64_t stages, int64_t ranks) { return stages == 2 * ranks; }

constexpr PlacementRule kChain = {
    "stage i on rank i", [](StageIndex stage, int32_t /*ranks*/) -> RankIndex { return stage; },
    [](int64_t stages, int64_t ranks) { return stages == ranks; }};
constexpr PlacementRule kLooped = {
    "two stages or more to a rank, round and round: stage i on rank i modulo ranks", LoopedRank,
    [](int64_t stages, int64_t ranks) { return stages >= 2 * ranks && stages % ranks == 0; }};
constexpr PlacementRule kV = {
    "two stages to a rank, down and up again: stage i on rank i, then on 2 ranks - 1 - i", VRank,
    AreTwoToARank};
// As dual_pipe.h says: nothing passes from the one half of the stages to the other.
constexpr PlacementRule kTwoWays = {
    "two stages to a rank, those of the second half in reverse, and no edge between the halves",
    VRank, AreTwoToARank};

constexpr absl::string_view kSequenceSplit = "sequence_split";

struct NamedSchedule {
  absl::string_view name;
  const PlacementRule* placement = &kChain;
  absl::StatusOr<Schedule> (*make)(const NamedScheduleRequest& request) = nullptr;
  bool is_split = false;  // by itself
};

int32_t StagesOf(const NamedScheduleRequest& request) {
  return static_cast<int32_t>(request.profile.stages.size());
}

absl::StatusOr<Schedule> MakeGivenOrFastestWindows(const NamedScheduleRequest& request) {
  if (!request.windows.empty()) {
    if (std::ssize(request.windows) != StagesOf(request)) {
      return absl::InvalidArgumentError(absl::StrCat("windows: expected one for each of the ",
                                                     StagesOf(request), " stages, found ",
                                                     request.windows.size()));
    }
    return MakeWindowOrder(request.windows, request.microbatches, "window_order");
  }
  ASSIGN_OR_RETURN(const std::vector<int32_t> windows,
                   FastestWindows(WithoutSkips(request.profile), request.form,
                                  WindowsThatFit(request.profile, request.microbatches)));
  return MakeWindowOrder(windows, request.microbatches, "window_order");
}

constexpr std::array kSchedules = {
    NamedSchedule{
        "gpipe", &kChain,
        [](const NamedScheduleRequest& r) { return MakeGpipe(StagesOf(r), r.microbatches); }},
    NamedSchedule{"1f1b", &kChain,
                  [](const NamedScheduleRequest& r) {
                    return MakeOneForwardOneBackward(StagesOf(r), r.microbatches);
                  }},
    NamedSchedule{"eager_1f1b", &kChain,
                  [](const NamedScheduleRequest& r) {
                    return MakeEagerOneForwardOneBackward(StagesOf(r), r.microbatches);
                  }},
    NamedSchedule{"window_order", &kChain, MakeGivenOrFastestWindows},
    NamedSchedule{
        "zb_h1", &kChain,
        [](const NamedScheduleRequest& r) { return MakeZeroBubbleH1(StagesOf(r), r.microbatches); },
        true},
    NamedSchedule{
        "zb_h2", &kChain,
        [](const NamedScheduleRequest& r) { return MakeZeroBubbleH2(StagesOf(r), r.microbatches); },
        true},
    NamedSchedule{"interleaved_1f1b", &kLooped,
                  [](const NamedScheduleRequest& r) {
                    return MakeInterleaved({.ranks = r.profile.ranks(),
                                            .chunks = StagesOf(r) / r.profile.ranks(),
                                            .microbatches = r.microbatches});
                  }},
    NamedSchedule{"interleaved_zero_bubble", &kLooped,
                  [](const NamedScheduleRequest& r) {
                    return MakeInterleavedZeroBubble({.ranks = r.profile.ranks(),
                                                      .chunks = StagesOf(r) / r.profile.ranks(),
                                                      .microbatches = r.microbatches});
                  },
                  true},
    NamedSchedule{"looped_bfs", &kLooped,
                  [](const NamedScheduleRequest& r) {
                    return MakeLoopedBreadthFirst(r.profile.ranks(),
                                                  StagesOf(r) / r.profile.ranks(), r.microbatches);
                  }},
    NamedSchedule{"zb_v", &kV,
                  [](const NamedScheduleRequest& r) {
                    return MakeZeroBubbleV(r.profile.ranks(), r.microbatches);
                  },
                  true},
    NamedSchedule{"v_half", &kV,
                  [](const NamedScheduleRequest& r) {
                    return MakeControllableMemory(MemoryBlock::kHalf, r.profile.ranks(),
                                                  r.microbatches);
                  },
                  true},
    NamedSchedule{"v_min", &kV,
                  [](const NamedScheduleRequest& r) {
                    return MakeControllableMemory(MemoryBlock::kMin, r.profile.ranks(),
                                                  r.microbatches);
                  },
                  true},
    NamedSchedule{"dual_pipe_v", &kV,
                  [](const NamedScheduleRequest& r) {
                    return MakeDualPipeV(r.profile.ranks(), r.microbatches, r.profile.pairs);
                  },
                  true},
    // So many microbatches each way.
    NamedSchedule{"dual_pipe", &kTwoWays,
                  [](const NamedScheduleRequest& r) {
                    return MakeDualPipe(r.profile.ranks(), 2 * r.microbatches, r.profile.pairs);
                  },
                  true},
    NamedSchedule{kSequenceSplit, &kChain,
                  [](const NamedScheduleRequest& r) {
                    const int32_t parts = r.profile.sequence_parts;
                    return MakeSequenceSplit(StagesOf(r), r.microbatches / parts, parts);
                  }},
};

absl::StatusOr<const NamedSchedule*> FindSchedule(absl::string_view name) {
  for (const NamedSchedule& schedule : kSchedules) {
    if (schedule.name == name) return &schedule;
  }
  return absl::InvalidArgumentError(absl::StrCat("schedule: expected one of ",
                                                 absl::StrJoin(ScheduleNames(), ", "), ", found \"",
                                                 name, "\""));
}

}  // namespace

std::vector<absl::string_view> ScheduleNames() {
  std::vector<absl::string_view> names;
  for (const NamedSchedule& schedule : kSchedules) names.push_back(schedule.name);
  return names;
}

bool HasWholeBackwardOps(absl::string_view schedule) {
  const absl::StatusOr<const NamedSchedule*> named = FindSchedule(schedule);
  return named.ok() && !(*named)->is_split;
}

absl::Status CheckPlacement(absl::string_view schedule, const PipelineProfile& profile) {
  ASSIGN_OR_RETURN(const NamedSchedule* named, FindSchedule(schedule));
  const auto stages = static_cast<int32_t>(profile.stages.size());
  const auto refused = [&](const std::string& found) {
    return absl::InvalidArgumentError(
        absl::StrCat(schedule, ": expected ", named->placement->text, "; found ", found));
  };
  const absl::Status whole = CheckWholeSequences(profile);
  if (schedule != kSequenceSplit && !whole.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(schedule, ": ", whole.message()));
  }
  if (schedule == kSequenceSplit && whole.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(schedule, ": expected sequences in 2 parts or more, found them whole"));
  }
  if (!named->placement->fits(stages, profile.ranks())) {
    return refused(absl::StrCat(stages, " stages on ", profile.ranks(), " ranks"));
  }
  for (StageIndex s = 0; s < stages; ++s) {
    const RankIndex rank = profile.stages[s].rank;
    if (rank != named->placement->rank_of(s, profile.ranks())) {
      return refused(absl::StrCat("stage ", s, " on rank ", rank));
    }
  }
  if (named->placement != &kTwoWays) return absl::OkStatus();
  for (const EdgeProfile& edge : profile.edges) {
    if (edge.from >= profile.ranks() || edge.to < profile.ranks()) continue;
    return refused(absl::StrCat("an edge from stage ", edge.from, " to ", edge.to));
  }
  return absl::OkStatus();
}

absl::StatusOr<Schedule> MakeNamedSchedule(absl::string_view name,
                                           const NamedScheduleRequest& request) {
  ASSIGN_OR_RETURN(const NamedSchedule* named, FindSchedule(name));
  RETURN_IF_ERROR(CheckPlacement(name, request.profile));
  RETURN_IF_ERROR(CheckMicrobatches(request.profile, request.microbatches));
  ASSIGN_OR_RETURN(Schedule schedule, named->make(request));
  // Schedules with gradients one by one already have no backward op left to split.
  if (request.form == BackwardForm::kFull) return schedule;
  return DelayWeightGradients(schedule);
}

std::vector<int32_t> WindowsThatFit(const PipelineProfile& profile, int32_t microbatches) {
  const std::vector<std::optional<ByteCount>> room = RoomForActivations(profile);
  std::vector<int32_t> windows;
  for (const StageProfile& stage : profile.stages) {
    int64_t fitting = microbatches;
    if (room[stage.rank] && stage.activation_bytes() > ByteCount(0)) {
      fitting = *room[stage.rank] / stage.activation_bytes();
    }
    windows.push_back(static_cast<int32_t>(std::clamp<int64_t>(fitting, 1, microbatches)));
  }
  return windows;
}

PipelineProfile WithoutSkips(PipelineProfile profile) {
  std::erase_if(profile.edges, [](const EdgeProfile& edge) { return edge.to != edge.from + 1; });
  std::ranges::sort(profile.edges, {}, &EdgeProfile::from);
  return profile;
}

}  // namespace crossmesh
