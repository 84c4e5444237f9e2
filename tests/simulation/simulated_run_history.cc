#include "tests/simulation/simulated_run_history.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr size_t kPartsOfARank = 4;  // each of which computes a part of a rank

}  // namespace

void SimulatedRunHistory::Violated(const std::string& run, int64_t iteration,
                                   const std::string& what) {
  history_.Violated(absl::StrCat("iteration ", iteration, " of ", run, " ", what));
}

void SimulatedRunHistory::OnOp(const Computer& computer, int64_t iteration) {
  Run& run = runs_[computer.run];
  const auto told = run.told_complete.find(computer.worker);
  if (told != run.told_complete.end() && iteration <= told->second) {
    Violated(computer.run, iteration,
             absl::StrCat("is computed at ", computer.worker, " after ", told->second,
                          " was said to be complete"));
  }
  const auto [part, is_new] =
      run.iterations[iteration].try_emplace(computer.worker, Part{.program = computer.program});
  if (part->second.program != computer.program) {
    Violated(computer.run, iteration,
             absl::StrCat("is computed at ", computer.worker, " in a second start"));
  }
  const auto [life, is_first] = run.lives.try_emplace(computer.worker, computer.life);
  if (life->second != computer.life && !computer.knows_loss) {
    Violated(computer.run, iteration,
             absl::StrCat("is computed by a new process of ", computer.worker,
                          ", which was not told that state is lost"));
  }
  life->second = computer.life;
}

void SimulatedRunHistory::OnOpDone(const Computer& computer, int64_t iteration, int64_t ops) {
  Part& part = runs_[computer.run].iterations[iteration][computer.worker];
  if (part.ops_left < 0) part.ops_left = ops;
  --part.ops_left;
}

void SimulatedRunHistory::OnComplete(const Computer& computer, int64_t iteration) {
  Run& run = runs_[computer.run];
  const auto [told, is_first] = run.told_complete.try_emplace(computer.worker, iteration);
  if (iteration < told->second) {
    Violated(computer.run, iteration,
             absl::StrCat("is complete, ", computer.worker, " is told after ", told->second));
  }
  told->second = iteration;
  run.complete.insert(iteration);
  CheckComplete(computer.run, iteration);
}

void SimulatedRunHistory::CheckComplete(const std::string& run, int64_t iteration) {
  Run& known = runs_[run];
  if (known.failed.contains(iteration)) Violated(run, iteration, "has failed, and is complete");
  const auto& parts = known.iterations[iteration];
  const bool is_done =
      parts.size() == kPartsOfARank &&
      std::ranges::all_of(parts, [](const auto& part) { return part.second.ops_left == 0; });
  if (!is_done) Violated(run, iteration, "is said to be complete before all have computed it");
}

void SimulatedRunHistory::OnWrongInput(const Computer& computer, int64_t iteration) {
  Violated(computer.run, iteration,
           absl::StrCat("has other bytes at ", computer.worker, " than were sent"));
}

void SimulatedRunHistory::OnTold(const std::string& run, const v1::PipelineRun& told) {
  Run& known = runs_[run];
  if (known.id.empty()) known.id = told.id();
  if (known.id != told.id()) {
    history_.Violated(absl::StrCat("request ", run, " began ", known.id, " and ", told.id()));
  }
  for (const v1::PipelineIteration& iteration : told.done()) {
    if (iteration.error_code() != 0) {
      known.failed.insert(iteration.index());
      if (known.complete.contains(iteration.index())) {
        Violated(run, iteration.index(), "is complete, and has failed");
      }
    } else if (known.complete.insert(iteration.index()).second) {
      ++complete_;
      CheckComplete(run, iteration.index());
    }
  }
  if (!told.has_end_time()) return;
  if (known.end.has_value() && *known.end != told.state()) {
    history_.Violated(absl::StrCat("run ", told.id(), " had ended as ",
                                   v1::PipelineRunState_Name(*known.end), ", and is now ",
                                   v1::PipelineRunState_Name(told.state())));
  }
  known.end = told.state();
}

void SimulatedRunHistory::CheckAllEnded() {
  for (const auto& [name, run] : runs_) {
    if (run.end.has_value()) continue;
    history_.Violated(absl::StrCat(
        "run ", name, run.id.empty() ? " was taken by no controller" : " has not ended",
        ", long after the last fault"));
  }
}

}  // namespace crossmesh
