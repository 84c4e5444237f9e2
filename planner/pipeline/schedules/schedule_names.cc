#include "planner/pipeline/schedules/schedule_names.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/memory.h"
#include "planner/pipeline/schedules/controllable_memory.h"
#include "planner/pipeline/schedules/dual_pipe.h"
#include "planner/pipeline/schedules/eager_one_f_one_b.h"
#include "planner/pipeline/schedules/gpipe.h"
#include "planner/pipeline/schedules/interleaved.h"
#include "planner/pipeline/schedules/looped_bfs.h"
#include "planner/pipeline/schedules/one_f_one_b.h"
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
enum class PlacementForm : uint8_t {
  kChain,   // stage i on rank i
  kLooped,  // LoopedRank, two stages or more to a rank
  kV,       // VRank
  kTwoWays  // BothWays: VRank, but nothing passes from the one half of the stages to the other
};

constexpr absl::string_view kSequenceSplit = "sequence_split";

struct NamedSchedule {
  absl::string_view name;
  PlacementForm placement = PlacementForm::kChain;
  absl::StatusOr<Schedule> (*make)(const NamedScheduleRequest& request) = nullptr;
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
        "gpipe", PlacementForm::kChain,
        [](const NamedScheduleRequest& r) { return MakeGpipe(StagesOf(r), r.microbatches); }},
    NamedSchedule{"1f1b", PlacementForm::kChain,
                  [](const NamedScheduleRequest& r) {
                    return MakeOneForwardOneBackward(StagesOf(r), r.microbatches);
                  }},
    NamedSchedule{"eager_1f1b", PlacementForm::kChain,
                  [](const NamedScheduleRequest& r) {
                    return MakeEagerOneForwardOneBackward(StagesOf(r), r.microbatches);
                  }},
    NamedSchedule{"window_order", PlacementForm::kChain, MakeGivenOrFastestWindows},
    NamedSchedule{"zb_h1", PlacementForm::kChain,
                  [](const NamedScheduleRequest& r) {
                    return MakeZeroBubbleH1(StagesOf(r), r.microbatches);
                  }},
    NamedSchedule{"zb_h2", PlacementForm::kChain,
                  [](const NamedScheduleRequest& r) {
                    return MakeZeroBubbleH2(StagesOf(r), r.microbatches);
                  }},
    NamedSchedule{"interleaved_1f1b", PlacementForm::kLooped,
                  [](const NamedScheduleRequest& r) {
                    return MakeInterleaved({.ranks = r.profile.ranks(),
                                            .chunks = StagesOf(r) / r.profile.ranks(),
                                            .microbatches = r.microbatches});
                  }},
    NamedSchedule{"looped_bfs", PlacementForm::kLooped,
                  [](const NamedScheduleRequest& r) {
                    return MakeLoopedBreadthFirst(r.profile.ranks(),
                                                  StagesOf(r) / r.profile.ranks(), r.microbatches);
                  }},
    NamedSchedule{"zb_v", PlacementForm::kV,
                  [](const NamedScheduleRequest& r) {
                    return MakeZeroBubbleV(r.profile.ranks(), r.microbatches);
                  }},
    NamedSchedule{"v_half", PlacementForm::kV,
                  [](const NamedScheduleRequest& r) {
                    return MakeControllableMemory(MemoryBlock::kHalf, r.profile.ranks(),
                                                  r.microbatches);
                  }},
    NamedSchedule{"v_min", PlacementForm::kV,
                  [](const NamedScheduleRequest& r) {
                    return MakeControllableMemory(MemoryBlock::kMin, r.profile.ranks(),
                                                  r.microbatches);
                  }},
    NamedSchedule{"dual_pipe_v", PlacementForm::kV,
                  [](const NamedScheduleRequest& r) {
                    return MakeDualPipeV(r.profile.ranks(), r.microbatches);
                  }},
    // So many microbatches each way.
    NamedSchedule{"dual_pipe", PlacementForm::kTwoWays,
                  [](const NamedScheduleRequest& r) {
                    return MakeDualPipe(r.profile.ranks(), 2 * r.microbatches);
                  }},
    NamedSchedule{kSequenceSplit, PlacementForm::kChain,
                  [](const NamedScheduleRequest& r) {
                    const int32_t parts = r.profile.sequence_parts;
                    return MakeSequenceSplit(StagesOf(r), r.microbatches / parts, parts);
                  }},
};

absl::string_view PlacementText(PlacementForm form) {
  switch (form) {
    case PlacementForm::kChain:
      return "stage i on rank i";
    case PlacementForm::kLooped:
      return "two stages or more to a rank, round and round: stage i on rank i modulo ranks";
    case PlacementForm::kV:
      return "two stages to a rank, down and up again: stage i on rank i, then on 2 ranks - 1 - i";
    case PlacementForm::kTwoWays:
      return "two stages to a rank, those of the second half in reverse, and no edge between the "
             "halves";
  }
  return "";
}

RankIndex RankIn(PlacementForm form, StageIndex stage, int32_t ranks) {
  switch (form) {
    case PlacementForm::kChain:
      return stage;
    case PlacementForm::kLooped:
      return LoopedRank(stage, ranks);
    case PlacementForm::kV:
    case PlacementForm::kTwoWays:
      return VRank(stage, ranks);
  }
  return stage;
}

bool FitsCount(PlacementForm form, int64_t stages, int64_t ranks) {
  switch (form) {
    case PlacementForm::kChain:
      return stages == ranks;
    case PlacementForm::kLooped:
      return stages >= 2 * ranks && stages % ranks == 0;
    case PlacementForm::kV:
    case PlacementForm::kTwoWays:
      return stages == 2 * ranks;
  }
  return false;
}

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

absl::Status CheckPlacement(absl::string_view schedule, const PipelineProfile& profile) {
  ASSIGN_OR_RETURN(const NamedSchedule* named, FindSchedule(schedule));
  const auto stages = static_cast<int32_t>(profile.stages.size());
  const auto refused = [&](const std::string& found) {
    return absl::InvalidArgumentError(
        absl::StrCat(schedule, ": expected ", PlacementText(named->placement), "; found ", found));
  };
  const absl::Status whole = CheckWholeSequences(profile);
  if (schedule != kSequenceSplit && !whole.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(schedule, ": ", whole.message()));
  }
  if (schedule == kSequenceSplit && whole.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(schedule, ": expected sequences in 2 parts or more, found them whole"));
  }
  if (!FitsCount(named->placement, stages, profile.ranks())) {
    return refused(absl::StrCat(stages, " stages on ", profile.ranks(), " ranks"));
  }
  for (StageIndex s = 0; s < stages; ++s) {
    const RankIndex rank = profile.stages[s].rank;
    if (rank != RankIn(named->placement, s, profile.ranks())) {
      return refused(absl::StrCat("stage ", s, " on rank ", rank));
    }
  }
  if (named->placement != PlacementForm::kTwoWays) return absl::OkStatus();
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
  const std::vector<RankMemory> fixed = FixedMemory(profile);
  std::vector<int32_t> windows;
  for (const StageProfile& stage : profile.stages) {
    const std::optional<ByteCount>& most = profile.rank_bytes_max[stage.rank];
    int64_t fitting = microbatches;
    if (most && stage.activation_bytes() > ByteCount(0)) {
      fitting = (*most - fixed[stage.rank].bytes()) / stage.activation_bytes();
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
