#include "controller/pipeline/search/candidates.h"

#include "controller/pipeline/memory.h"
#include "controller/pipeline/schedules/controllable_memory.h"
#include "controller/pipeline/schedules/dual_pipe.h"
#include "controller/pipeline/schedules/eager_one_f_one_b.h"
#include "controller/pipeline/schedules/gpipe.h"
#include "controller/pipeline/schedules/interleaved.h"
#include "controller/pipeline/schedules/looped_bfs.h"
#include "controller/pipeline/schedules/one_f_one_b.h"
#include "controller/pipeline/schedules/period_law.h"
#include "controller/pipeline/schedules/placement.h"
#include "controller/pipeline/schedules/window_order.h"
#include "controller/pipeline/schedules/zero_bubble.h"
#include "controller/pipeline/schedules/zero_bubble_v.h"
#include "controller/pipeline/search/list_schedule.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

class CandidateLister {
 public:
  CandidateLister(const PipelineProfile& profile, int32_t microbatches, BackwardForm form,
                  double seconds)
      : profile_(profile), microbatches_(microbatches), form_(form), seconds_(seconds) {
    const std::vector<RankMemory> fixed = FixedMemory(profile);
    for (const StageProfile& stage : profile.stages) {
      const std::optional<ByteCount>& most = profile.rank_bytes_max[stage.rank];
      room_.push_back(most);
      if (room_.back()) *room_.back() -= fixed[stage.rank].bytes();
      const bool is_limited = room_.back() && stage.activation_bytes() > ByteCount(0);
      const int64_t fitting =
          is_limited ? *room_.back() / stage.activation_bytes() : int64_t{microbatches};
      windows_max_.push_back(static_cast<int32_t>(std::clamp<int64_t>(fitting, 1, microbatches)));
    }
  }

  std::vector<Candidate> List() && {
    AddList("list", windows_max_, {.rush = 1.5});
    const std::optional<PipelineProfile> chain = FindChain();
    if (chain) AddChainOrders(*chain);
    AddLists("list", windows_max_);
    if (chain) AddWindowedLists(*chain);
    AddLoopedSchedules();
    AddVSchedules();
    return std::move(candidates_);
  }

 private:
  // What a list does of its options beside form and windows.
  struct ListManner {
    double overlap = 0.6;
    double target = 1;  // of the bound
    double rush = 0;
  };

  int32_t stages() const { return static_cast<int32_t>(profile_.stages.size()); }

  // Stages alone on ranks of their own, without skip connections: what the period law is about.
  std::optional<PipelineProfile> FindChain() const {
    PipelineProfile chain = profile_;
    std::erase_if(chain.edges, [](const EdgeProfile& edge) { return edge.to != edge.from + 1; });
    std::ranges::sort(chain.edges, {}, &EdgeProfile::from);
    if (!CheckChain(chain).ok()) return std::nullopt;
    return chain;
  }

  void Add(std::string name, std::function<absl::StatusOr<Schedule>()> make) {
    if (form_ == BackwardForm::kFull) {
      candidates_.push_back({std::move(name), std::move(make)});
      return;
    }
    // Only later for ops that nobody waits for: never worse.
    candidates_.push_back({std::move(name), [make = std::move(make)]() -> absl::StatusOr<Schedule> {
                             absl::StatusOr<Schedule> schedule = make();
                             if (schedule.ok()) *schedule = DelayWeightGradients(*schedule);
                             return schedule;
                           }});
  }

  void AddList(std::string name, std::vector<int32_t> windows, const ListManner& manner) {
    ListOptions options{.form = form_,
                        .windows = std::move(windows),
                        .overlap = manner.overlap,
                        .target_seconds = seconds_ * manner.target,
                        .rush = manner.rush};
    candidates_.push_back({std::move(name), [this_profile = &profile_, m = microbatches_,
                                             options = std::move(options)] {
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

  void AddWindowOrder(std::string name, const std::vector<int32_t>& windows) {
    Add(std::move(name), [windows, m = microbatches_] { return MakeWindowOrder(windows, m); });
  }

  void AddChainOrders(const PipelineProfile& chain) {
    const int32_t s = stages(), m = microbatches_;
    Add("1f1b", [s, m] { return MakeOneForwardOneBackward(s, m); });
    Add("eager_1f1b", [s, m] { return MakeEagerOneForwardOneBackward(s, m); });
    Add("gpipe", [s, m] { return MakeGpipe(s, m); });
    const absl::StatusOr<std::vector<int32_t>> fastest = FastestWindows(chain, form_, windows_max_);
    if (fastest.ok()) AddWindowsAround(chain, *fastest);
    if (form_ == BackwardForm::kFull) return;
    candidates_.push_back({"zb_h1", [s, m] { return MakeZeroBubbleH1(s, m); }});
    candidates_.push_back({"zb_h2", [s, m] { return MakeZeroBubbleH2(s, m); }});
    AddDelayedOrders(chain);
  }

  void AddWindowsAround(const PipelineProfile& chain, const std::vector<int32_t>& fastest) {
    AddWindowOrder("windows", fastest);
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
      candidates_.push_back({absl::StrCat("delayed, ", by, " more"),
                             [delayed = std::move(delayed), m = microbatches_] {
                               return MakeDelayedOrder(delayed, m);
                             }});
    }
  }

  void AddWindowedLists(const PipelineProfile& chain) {
    const auto fastest = FastestWindows(WithoutWeights(chain), form_, windows_max_);
    if (!fastest.ok()) return;
    for (const int32_t by : {32, 8, 16, 4, 1, 0}) {
      const std::string name = absl::StrCat("list of windows, ", by, " more");
      const std::vector<int32_t> windows = Widened(*fastest, by);
      AddLists(name, windows);
    }
  }

  bool IsPlaced(RankIndex (*rank_of)(StageIndex, int32_t)) const {
    for (StageIndex s = 0; s < stages(); ++s) {
      if (profile_.stages[s].rank != rank_of(s, profile_.ranks())) return false;
    }
    return true;
  }

  void AddLoopedSchedules() {
    const int32_t ranks = profile_.ranks(), chunks = stages() / ranks, m = microbatches_;
    if (chunks < 2 || stages() % ranks != 0 || !IsPlaced(LoopedRank)) return;
    Add("interleaved_1f1b",
        [=] { return MakeInterleaved({.ranks = ranks, .chunks = chunks, .microbatches = m}); });
    Add("looped_bfs", [=] { return MakeLoopedBreadthFirst(ranks, chunks, m); });
  }

  void AddVSchedules() {
    const int32_t ranks = profile_.ranks(), m = microbatches_;
    if (stages() != 2 * ranks || !IsPlaced(VRank) || form_ == BackwardForm::kFull) return;
    candidates_.push_back({"zb_v", [=] { return MakeZeroBubbleV(ranks, m); }});
    candidates_.push_back(
        {"v_half", [=] { return MakeControllableMemory(MemoryBlock::kHalf, ranks, m); }});
    candidates_.push_back(
        {"v_min", [=] { return MakeControllableMemory(MemoryBlock::kMin, ranks, m); }});
    Add("dual_pipe_v", [=] { return MakeDualPipeV(ranks, m); });
  }

  const PipelineProfile& profile_;
  const int32_t microbatches_;
  const BackwardForm form_;
  const double seconds_;
  std::vector<std::optional<ByteCount>> room_;  // by stage: for activations of its rank
  std::vector<int32_t> windows_max_;            // by stage
  std::vector<Candidate> candidates_;
};

}  // namespace

std::vector<Candidate> ListCandidates(const PipelineProfile& profile, int32_t microbatches,
                                      BackwardForm form, double seconds) {
  return CandidateLister(profile, microbatches, form, seconds).List();
}

}  // namespace crossmesh
