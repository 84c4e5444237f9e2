#include "controller/service/pipeline_run_registry.h"

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/wire/time_codec.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

Digest ContentOf(v1::StartPipelineRequest request) {
  request.clear_request_id();
  return Digest::Of(request.SerializeAsString());
}

}  // namespace

absl::StatusOr<std::optional<std::string>> PipelineRunRegistry::Find(
    const v1::StartPipelineRequest& request) const {
  const Digest content = ContentOf(request);
  const MutexLock lock(mutex_);
  return FindLocked(request.request_id(), content);
}

absl::StatusOr<std::optional<std::string>> PipelineRunRegistry::FindLocked(
    const std::string& request_id, const Digest& content) const {
  const auto known = run_of_request_.find(request_id);
  if (known == run_of_request_.end()) return std::nullopt;
  if (runs_.at(known->second).content == content) return known->second;
  return absl::AlreadyExistsError(
      absl::StrCat("request_id ", request_id, " began run ", known->second, " with other content"));
}

absl::StatusOr<PipelineRunRegistry::Entry> PipelineRunRegistry::Open(
    const v1::StartPipelineRequest& request) {
  const Digest content = ContentOf(request);
  v1::PipelineRun first;
  first.set_request_id(request.request_id());
  first.set_state(v1::PIPELINE_RUN_STATE_PREPARING);
  first.set_pipeline(request.has_inline_pipeline() ? request.inline_pipeline().name()
                                                   : request.pipeline());
  first.set_rehearsal(request.rehearsal());
  first.set_iterations(request.iterations());
  first.set_revision(1);
  *first.mutable_create_time() = ToProto(options_.clock.Now());

  const MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(const std::optional<std::string> known,
                   FindLocked(request.request_id(), content));
  if (known.has_value()) return Entry{.run = *runs_.at(*known).latest};
  first.set_id(absl::StrFormat("pr-%016x", options_.epoch + ++opened_));
  run_of_request_[request.request_id()] = first.id();
  runs_[first.id()] = {.content = content,
                       .latest = std::make_shared<const v1::PipelineRun>(first)};
  return Entry{.run = std::move(first), .is_new = true};
}

void PipelineRunRegistry::Withdraw(const std::string& id, const absl::Status& why) {
  Watchers watchers;
  {
    const MutexLock lock(mutex_);
    const auto found = runs_.find(id);
    CHECK(found != runs_.end()) << id << " does not run";
    watchers = std::move(found->second.watchers);
    run_of_request_.erase(found->second.latest->request_id());
    runs_.erase(found);
  }
  for (const auto& watcher : watchers) watcher->OnNoRun(why);
}

void PipelineRunRegistry::Watch(const std::string& id,
                                const std::shared_ptr<PipelineWatcher>& watcher) {
  // On the queue, so that a watcher hears of changes in their order.
  const bool taken = options_.queue.Post([this, id, watcher] {
    const auto latest = Get(id);
    if (!latest.ok()) return watcher->OnNoRun(latest.status());
    if (!(*latest)->has_end_time()) {
      const MutexLock lock(mutex_);
      const auto found = runs_.find(id);
      if (found != runs_.end()) found->second.watchers.push_back(watcher);
    }
    if (!watcher->OnRun(**latest)) Unwatch(id, watcher.get());
  });
  if (!taken) watcher->OnNoRun(absl::UnavailableError("the controller is stopping"));
}

void PipelineRunRegistry::Unwatch(const std::string& id, const PipelineWatcher* watcher) {
  std::shared_ptr<PipelineWatcher> removed;  // goes away without the lock
  const MutexLock lock(mutex_);
  const auto found = runs_.find(id);
  if (found == runs_.end()) return;
  Watchers& watchers = found->second.watchers;
  const auto at = std::ranges::find(watchers, watcher, &std::shared_ptr<PipelineWatcher>::get);
  if (at == watchers.end()) return;
  removed = std::move(*at);
  watchers.erase(at);
}

void PipelineRunRegistry::DismissWatchers(const absl::Status& why) {
  Watchers dismissed;
  {
    const MutexLock lock(mutex_);
    for (auto& [id, run] : runs_) {
      dismissed.insert(dismissed.end(), run.watchers.begin(), run.watchers.end());
      run.watchers.clear();
    }
  }
  for (const auto& watcher : dismissed) watcher->OnNoRun(why);
}

absl::StatusOr<std::shared_ptr<const v1::PipelineRun>> PipelineRunRegistry::Get(
    const std::string& id) const {
  const MutexLock lock(mutex_);
  const auto found = runs_.find(id);
  if (found == runs_.end()) return absl::NotFoundError(absl::StrCat("unknown run ", id));
  return found->second.latest;
}

std::vector<std::shared_ptr<const v1::PipelineRun>> PipelineRunRegistry::List(
    const std::string& before, int64_t limit) const {
  std::vector<std::shared_ptr<const v1::PipelineRun>> runs;
  const MutexLock lock(mutex_);
  for (auto at = before.empty() ? runs_.end() : runs_.lower_bound(before);
       at != runs_.begin() && std::ssize(runs) < limit;) {
    runs.push_back((--at)->second.latest);
  }
  return runs;
}

void PipelineRunRegistry::OnRun(std::shared_ptr<const v1::PipelineRun> run) {
  const bool ended = run->has_end_time();
  const size_t bytes = ended ? run->ByteSizeLong() : 0;
  Watchers watchers;
  {
    const MutexLock lock(mutex_);
    Run& known = runs_.at(run->id());
    known.latest = run;
    watchers = known.watchers;
    if (ended) {
      known.watchers.clear();
      ended_.push_back(run->id());
      ended_bytes_ += bytes;
      ForgetTooMany();
    }
  }
  if (ended) {
    LogInfo("pipeline_run_ended", {{"run_id", run->id()},
                                   {"state", v1::PipelineRunState_Name(run->state())},
                                   {"failed_iterations", run->failed_iterations()},
                                   {"median_seconds", run->median_seconds()},
                                   {"error", run->error()}});
  }
  for (const auto& watcher : watchers) {
    if (!watcher->OnRun(*run)) Unwatch(run->id(), watcher.get());
  }
}

void PipelineRunRegistry::ForgetTooMany() {
  while (ended_.size() > 1 &&
         (ended_.size() > options_.ended_max || ended_bytes_ > options_.ended_bytes_max)) {
    const auto oldest = runs_.find(ended_.front());
    ended_bytes_ -= oldest->second.latest->ByteSizeLong();
    run_of_request_.erase(oldest->second.latest->request_id());
    runs_.erase(oldest);
    ended_.pop_front();
  }
}

}  // namespace crossmesh
