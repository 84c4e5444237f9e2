#include "tests/reliability/pipeline_load.h"

#include "client/outcome.h"
#include "common/base/clock.h"
#include "tests/live/chain_pipeline.h"
#include "tests/reliability/load_client.h"

#include <algorithm>
#include <set>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kIterations = 10;
constexpr double kSecondsOfAnOp = 0.001;
// A controller keeps the last thousand.
constexpr size_t kRunsKept = 900;

}  // namespace

PipelineLoad::PipelineLoad(const LoadEnvironment& environment)
    : environment_(environment),
      client_(ConnectForLoad(environment.cluster)),
      pipeline_(ChainPipeline(environment.cluster.workers(), kSecondsOfAnOp)) {}

void PipelineLoad::Run(const std::atomic<bool>& stop) {
  while (!stop) Step();
}

void PipelineLoad::Step() {
  v1::StartPipelineRequest request;
  *request.mutable_inline_pipeline() = pipeline_;
  request.mutable_choice()->set_schedule("eager_1f1b");
  request.set_request_id(NewRequestId());
  request.set_iterations(kIterations);
  request.set_rehearsal(true);
  request.mutable_stall_limit()->set_seconds(1);
  const RealClock clock;
  const absl::Duration begin = clock.Monotonic();
  std::set<std::string> ids;
  Iterations told;
  const absl::StatusOr<v1::PipelineRun> run =
      client_.StartPipeline(request, [&](const v1::PipelineRun& now) {
        ids.insert(now.id());
        Note(now, told);
      });
  if (!run.ok()) {
    if (!ids.empty()) {
      environment_.violations.Add(
          absl::StrCat("run ", *ids.begin(), " began, and then: ", run.status().ToString()));
    }
    ++refused_;
    PauseOfLoad();
    return;
  }
  if (ids.size() > 1) {
    environment_.violations.Add(
        absl::StrCat("request ", request.request_id(), " began ", ids.size(), " runs"));
  }
  longest_ = std::max(longest_, clock.Monotonic() - begin);
  CheckEnd(*run, told);
  ++counts_[StateName(run->state())];
  if (!run->error().empty()) why_ = run->error();
  ended_[run->id()] = *run;
  if (ended_.size() > kRunsKept) ended_.erase(ended_.begin());
}

void PipelineLoad::Note(const v1::PipelineRun& run, Iterations& told) {
  int64_t last = -1;
  for (const v1::PipelineIteration& iteration : run.done()) {
    if (iteration.index() <= last) {
      environment_.violations.Add(absl::StrCat("run ", run.id(), ": iteration ", iteration.index(),
                                               " after iteration ", last));
    }
    last = iteration.index();
    const bool complete = iteration.error().empty();
    const auto [before, is_new] = told.emplace(iteration.index(), complete);
    if (is_new || before->second == complete) continue;
    environment_.violations.Add(
        absl::StrCat("run ", run.id(), ": iteration ", iteration.index(), " was ",
                     before->second ? "complete" : "failed", ", and is now ",
                     complete ? "complete" : absl::StrCat("failed: ", iteration.error())));
  }
}

void PipelineLoad::CheckEnd(const v1::PipelineRun& run, const Iterations& told) {
  const int64_t complete =
      std::ranges::count_if(told, [](const auto& iteration) { return iteration.second; });
  complete_ += complete;
  failed_ += run.failed_iterations();
  const int64_t last = told.empty() ? -1 : told.rbegin()->first;
  if (last >= kIterations || complete + run.failed_iterations() > kIterations) {
    environment_.violations.Add(absl::StrCat("run ", run.id(), " of ", kIterations,
                                             " iterations: ", complete, " complete, ",
                                             run.failed_iterations(), " failed, the last ", last));
  }
  if (run.state() == v1::PIPELINE_RUN_STATE_DONE &&
      (last != kIterations - 1 || !told.rbegin()->second)) {
    environment_.violations.Add(absl::StrCat(
        "run ", run.id(), " is done, and the last iteration that is told of is ", last));
  }
  if (run.state() != v1::PIPELINE_RUN_STATE_DONE && run.error().empty()) {
    environment_.violations.Add(
        absl::StrCat("run ", run.id(), " is ", StateName(run.state()), ", and does not say why"));
  }
}

void PipelineLoad::Check() {
  for (const auto& [id, ended] : ended_) {
    const absl::StatusOr<v1::PipelineRun> now = client_.GetPipelineRun(id);
    if (now.ok() && now->state() == ended.state() &&
        now->failed_iterations() == ended.failed_iterations()) {
      continue;
    }
    environment_.violations.Add(absl::StrCat(
        "run ", id, " ended ", StateName(ended.state()), " with ", ended.failed_iterations(),
        " failed iterations, and is now ",
        now.ok() ? absl::StrCat(StateName(now->state()), " with ", now->failed_iterations())
                 : now.status().ToString()));
  }
}

std::string PipelineLoad::Summary() const {
  std::string text;
  for (const auto& [state, count] : counts_) absl::StrAppend(&text, state, " ", count, ", ");
  return absl::StrCat(text, "refused ", refused_, ", iterations complete ", complete_,
                      ", iterations failed ", failed_, ", longest ",
                      absl::FormatDuration(absl::Trunc(longest_, absl::Milliseconds(1))),
                      why_.empty() ? "" : absl::StrCat(", the last that failed: ", why_));
}

}  // namespace crossmesh
