#include "planner/pipeline/search/candidates.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/memory.h"
#include "planner/pipeline/schedules/period_law.h"
#include "planner/pipeline/schedules/schedule_names.h"
#include "planner/pipeline/schedules/sequence_split.h"
#include "planner/pipeline/schedules/window_order.h"
#include "planner/pipeline/schedules/zero_bubble.h"
#include "planner/pipeline/search/beam_schedule.h"
#include "planner/pipeline/search/list_schedule.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

class CandidateLister {
 public:
  CandidateLister(const PipelineProfile& profile, const CandidateRequest& request)
      : profile_(profile),
        microbatches_(request.microbatches),
        form_(request.form),
        seconds_(request.seconds),
        beam_ops_(request.beam_ops),
        shares_ports_(request.shares_ports),
        windows_max_(WindowsThatFit(profile, request.microbatches)) {
    const std::vector<std::optional<ByteCount>> of_rank = RoomForActivations(profile);
    for (const StageProfile& stage : profile.stages) room_.push_back(of_rank[stage.rank]);
  }

  std::vector<Candidate> List() && {
    if (profile_.sequence_parts > 1) {
      AddNamed("sequence_split", form_);
      AddSequenceSplits();
      return std::move(candidates_);
    }
    // First, since it is nearly always the best of those that a search looks at whatever it may
    // cost.
    AddList("list", windows_max_, {.rush = 1.5});
    for (const absl::string_view name : ScheduleNames()) {
      if (form_ == BackwardForm::kSplit || HasWholeBackwardOps(name)) AddNamed(name, form_);
      if (form_ == BackwardForm::kSplit && shares_ports_ && HasWholeBackwardOps(name)) {
        AddNamed(name, BackwardForm::kFull);
      }
    }
    // Lists are nearly always good where stages are alone on their ranks.
    constexpr int32_t kWidthMin = 4, kWidthMinOfChains = 32;
    const bool is_shared = stages() > profile_.ranks();
    AddBeam(is_shared ? kWidthMin : kWidthMinOfChains);
    if (is_shared) AddListsByStage();
    const std::optional<PipelineProfile> chain = FindChain();
    if (chain) AddChainOrders(*chain);
    AddLists("list", windows_max_);
    if (chain) AddWindowedLists(*chain);
    return std::move(candidates_);
  }

 private:
  // What a list does of its options beside form and windows.
  struct ListManner {
    double overlap = 0.6;
    double target = 1;  // of the bound
    double rush = 0;
    bool by_stage = false;  // memory
  };

  int32_t stages() const { return static_cast<int32_t>(profile_.stages.size()); }

  // Stages alone on ranks of their own, without skip connections: what the period law is about.
  std::optional<PipelineProfile> FindChain() const {
    PipelineProfile chain = WithoutSkips(profile_);
    if (!CheckChain(chain).ok()) return std::nullopt;
    return chain;
  }

  // Those of 1F1B's windows and larger ones, as far as memory goes, eager ones too.
  void AddSequenceSplits() {
    for (const int32_t by : {0, 1, 2, 4}) {
      AddSequenceSplit(absl::StrCat("sequence_split, ", by, " more"), 1, by);
    }
    AddSequenceSplit("sequence_split, eager", 2, -1);
  }

  void AddSequenceSplit(std::string name, int32_t for_each_stage, int32_t more) {
    const int32_t parts = profile_.sequence_parts;
    std::vector<int32_t> windows;
    for (StageIndex s = 0; s < stages(); ++s) {
      const int32_t fitting = std::max(windows_max_[s] - parts + 1, 1);
      windows.push_back(std::min(for_each_stage * (stages() - s) + more, fitting));
      // A stage that waits for more microbatches than the stage before it sends would wait for
      // ever.
      if (s > 0) windows[s] = std::min(windows[s], windows[s - 1]);
    }
    candidates_.push_back(
        {.name = std::move(name),
         .make = [windows = std::move(windows), parts, m = microbatches_,
                  form = form_]() -> absl::StatusOr<Schedule> {
           ASSIGN_OR_RETURN(Schedule schedule, MakeSequenceSplit(windows, m / parts, parts));
           return form == BackwardForm::kFull ? schedule : DelayWeightGradients(schedule);
         }});
  }

  // Where stages are placed as it wants.
  void AddNamed(absl::string_view name, BackwardForm form) {
    if (!CheckPlacement(name, profile_).ok()) return;
    candidates_.push_back({.name = std::string(name),
                           .is_named = true,
                           .make = [name, this_profile = &profile_, m = microbatches_, form] {
                             return MakeNamedSchedule(
                                 name, {.profile = *this_profile, .microbatches = m, .form = form});
                           }});
  }

  // As wide as it may be, if that is of use at all.
  void AddBeam(int32_t width_min) {
    // Each op is looked at in some places of each of its rows, and costs much more than in a run.
    constexpr int32_t kEffort = 50, kWidthMax = 128;
    const int64_t ops = int64_t{stages()} * microbatches_ * (form_ == BackwardForm::kFull ? 2 : 3);
    const auto width =
        static_cast<int32_t>(std::min<int64_t>(kWidthMax, beam_ops_ / (kEffort * ops)));
    if (width < width_min) return;
    candidates_.push_back(
        {.name = "beam",
         .effort = kEffort * width,
         .make = [width, this_profile = &profile_, m = microbatches_, form = form_] {
           return MakeBeamSchedule(*this_profile, m, form, width);
         }});
  }

  void AddList(std::string name, std::vector<int32_t> windows, const ListManner& manner) {
    ListOptions options{.form = form_,
                        .windows = std::move(windows),
                        .overlap = manner.overlap,
                        .target_seconds = seconds_ * manner.target,
                        .rush = manner.rush,
                        .by_stage = manner.by_stage};
    candidates_.push_back(
        {.name = std::move(name),
         .make = [this_profile = &profile_, m = microbatches_, options = std::move(options)] {
           return MakeListSchedule(*this_profile, m, options);
         }});
  }

  void AddLists(const std::string& name, const std::vector<int32_t>& windows) {
    if (form_ == BackwardForm::kFull) {
      for (const double rush : {0.0, 1.0, 2.0, 3.0}) {
        AddList(absl::StrCat(name, ", rush ", rush), windows, {.rush = rush});
      }
      return;
    }
    for (const ListManner& manner :
         {ListManner{1, 1, 0}, ListManner{0.6, 1.002, 0.5}, ListManner{0, 1.002, 0.5},
          ListManner{0.3, 1, 0.5}, ListManner{0.6, 1.01, 1}, ListManner{1, 1, 1},
          ListManner{0, 1, 0}, ListManner{0, 1.02, 0}, ListManner{0.8, 1, 0}}) {
      AddList(absl::StrCat(name, ", overlap ", manner.overlap, ", target ", manner.target,
                           ", rush ", manner.rush),
              windows, manner);
    }
  }

  // Where a rank has memory for some of its stages but not for all of them.
  void AddListsByStage() {
    for (const ListManner& manner : {ListManner{0.6, 1, 0, true}, ListManner{0.6, 1, 1.5, true},
                                     ListManner{1, 1, 0, true}, ListManner{0, 1, 0.5, true}}) {
      AddList(absl::StrCat("list by stage, overlap ", manner.overlap, ", rush ", manner.rush),
              windows_max_, manner);
    }
  }

  // Gradients of the weights anywhere: the law for what is in between.
  PipelineProfile WithoutWeights(PipelineProfile chain) const {
    if (form_ == BackwardForm::kFull) return chain;
    for (StageProfile& stage : chain.stages) stage.weight_gradient_seconds = 0;
    return chain;
  }

  // More of each, as far as memory goes.
  std::vector<int32_t> Widened(std::vector<int32_t> windows, int32_t by) const {
    for (size_t i = 0; i < windows.size(); ++i) {
      windows[i] = std::min(windows[i] + by, windows_max_[i]);
      if (i > 0) windows[i] = std::min(windows[i], windows[i - 1]);
    }
    return windows;
  }

  void AddWindowOrder(std::string name, std::vector<int32_t> windows) {
    candidates_.push_back(
        {.name = std::move(name),
         .make = [windows = std::move(windows), this_profile = &profile_, m = microbatches_,
                  form = form_] {
           return MakeNamedSchedule(
               "window_order",
               {.profile = *this_profile, .microbatches = m, .form = form, .windows = windows});
         }});
  }

  void AddChainOrders(const PipelineProfile& chain) {
    const absl::StatusOr<std::vector<int32_t>> fastest = FastestWindows(chain, form_, windows_max_);
    if (fastest.ok()) AddWindowsAround(chain, *fastest);
    if (form_ == BackwardForm::kFull) return;
    AddDelayedOrders(chain);
  }

  void AddWindowsAround(const PipelineProfile& chain, const std::vector<int32_t>& fastest) {
    for (const int32_t by : {1, 2, 4}) {
      AddWindowOrder(absl::StrCat("windows, ", by, " more"), Widened(fastest, by));
    }
    const double period = *PeriodOfWindows(chain, form_, fastest);
    for (const double longer : {1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0}) {
      const auto windows = SmallestWindows(chain, form_, period * longer);
      if (windows.ok()) AddWindowOrder(absl::StrCat("windows, period x ", longer), *windows);
    }
  }

  // As many gradients of the weights as memory is left for are delayed.
  void AddDelayedOrders(const PipelineProfile& chain) {
    const auto fastest = FastestWindows(WithoutWeights(chain), form_, windows_max_);
    if (!fastest.ok()) return;
    for (const int32_t by : {0, 1, 2, 4, 8}) {
      std::vector<DelayedStage> delayed;
      const std::vector<int32_t> windows = Widened(*fastest, by);
      for (StageIndex i = 0; i < stages(); ++i) {
        const StageProfile& stage = profile_.stages[i];
        int64_t delay = microbatches_;
        if (room_[i] && stage.weight_gradient_bytes > ByteCount(0)) {
          delay = (*room_[i] - windows[i] * stage.activation_bytes()) / stage.weight_gradient_bytes;
        }
        delayed.push_back(
            {.leading = windows[i],
             .delay = static_cast<int32_t>(std::clamp<int64_t>(delay, 0, microbatches_))});
      }
      candidates_.push_back({.name = absl::StrCat("delayed, ", by, " more"),
                             .make = [delayed = std::move(delayed), m = microbatches_] {
                               return MakeDelayedOrder(delayed, m);
                             }});
    }
  }

  void AddWindowedLists(const PipelineProfile& chain) {
    const auto fastest = FastestWindows(WithoutWeights(chain), form_, windows_max_);
    if (!fastest.ok()) return;
    // Roughly the best first: the search may end at any candidate.
    for (const int32_t by : {32, 8, 16, 4, 1, 0}) {
      const std::string name = absl::StrCat("list of windows, ", by, " more");
      const std::vector<int32_t> windows = Widened(*fastest, by);
      AddLists(name, windows);
    }
  }

  const PipelineProfile& profile_;
  const int32_t microbatches_;
  const BackwardForm form_;
  const double seconds_;
  const int64_t beam_ops_;
  const bool shares_ports_;
  std::vector<std::optional<ByteCount>> room_;  // by stage: for activations of its rank
  std::vector<int32_t> windows_max_;            // by stage
  std::vector<Candidate> candidates_;
};

}  // namespace

std::vector<Candidate> ListCandidates(const PipelineProfile& profile,
                                      const CandidateRequest& request) {
  return CandidateLister(profile, request).List();
}

}  // namespace crossmesh
