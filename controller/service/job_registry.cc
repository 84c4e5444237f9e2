#include "controller/service/job_registry.h"

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/wire/time_codec.h"
#include "controller/dispatch/job_numbers.h"

#include <functional>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

template <typename Subject>
absl::StatusOr<std::shared_ptr<const Subject>> Parse(const std::string& bytes) {
  auto job = std::make_shared<Subject>();
  if (!job->ParseFromString(bytes)) return absl::InternalError("a stored job does not parse");
  return job;
}

}  // namespace

template <typename Subject>
absl::StatusOr<std::optional<std::string>> JobRegistry<Subject>::FindRunning(
    const std::string& request_id, const Digest& content) const {
  const auto id = running_request_.find(request_id);
  if (id == running_request_.end()) return std::nullopt;
  if (running_.at(id->second).content == content) return id->second;
  return absl::AlreadyExistsError(absl::StrCat("request_id ", request_id, " began ",
                                               options_.records.noun(), " ", id->second,
                                               " with other content"));
}

template <typename Subject>
absl::StatusOr<std::optional<std::string>> JobRegistry<Subject>::Find(const std::string& request_id,
                                                                      const Digest& content) const {
  {
    const MutexLock lock(mutex_);
    ASSIGN_OR_RETURN(std::optional<std::string> running, FindRunning(request_id, content));
    if (running.has_value()) return running;
  }
  return options_.records.FindRequest(request_id, content);
}

template <typename Subject>
absl::StatusOr<std::string> JobRegistry<Subject>::Begin(
    Subject first, const Digest& content, absl::FunctionRef<absl::Status(Entry)> begin) {
  // First of all: what was begun goes on, also when the objects that it names are gone by now.
  ASSIGN_OR_RETURN(const std::optional<std::string> known, Find(first.request_id(), content));
  if (known.has_value()) return *known;
  if (refusing_) return absl::UnavailableError("the controller is stopping");
  Entry entry{.job = std::move(first), .number = options_.numbers.Next()};
  entry.job.set_id(options_.records.IdOf(entry.number));
  entry.job.set_revision(1);
  *entry.job.mutable_create_time() = ToProto(options_.clock.Now());
  {
    const MutexLock lock(mutex_);
    // The same request may have come twice at the same time.
    ASSIGN_OR_RETURN(const std::optional<std::string> raced,
                     FindRunning(entry.job.request_id(), content));
    if (raced.has_value()) return *raced;
    running_request_[entry.job.request_id()] = entry.job.id();
    running_[entry.job.id()] = {.number = entry.number,
                                .content = content,
                                .latest = std::make_shared<const Subject>(entry.job)};
  }
  TellState(0, entry.job.state());
  return Start(std::move(entry), begin);
}

template <typename Subject>
absl::StatusOr<std::string> JobRegistry<Subject>::Start(
    Entry entry, absl::FunctionRef<absl::Status(Entry)> begin) {
  const std::string id = entry.job.id();
  const absl::Status begun = begin(std::move(entry));
  if (begun.ok()) return id;
  const Running withdrawn = TakeOut(id);
  TellState(withdrawn.latest->state(), 0);
  for (const auto& [watch, watcher] : withdrawn.watchers) watcher(begun);
  return begun;
}

template <typename Subject>
typename JobRegistry<Subject>::Running JobRegistry<Subject>::TakeOut(const std::string& id) {
  const MutexLock lock(mutex_);
  const auto found = running_.find(id);
  CHECK(found != running_.end()) << id << " does not run";
  Running running = std::move(found->second);
  running_request_.erase(running.latest->request_id());
  running_.erase(found);
  return running;
}

template <typename Subject>
uint64_t JobRegistry<Subject>::Watch(const std::string& id, Watcher watcher) {
  uint64_t watch = 0;
  {
    const MutexLock lock(mutex_);
    watch = ++watches_;
  }
  // On the queue, so that a watcher hears of changes in their order.
  const bool taken =
      options_.queue.Post([this, id, watch, watcher] { AddWatcher(id, watch, watcher); });
  if (!taken) watcher(absl::UnavailableError("the controller is stopping"));
  return watch;
}

template <typename Subject>
void JobRegistry<Subject>::AddWatcher(const std::string& id, uint64_t watch,
                                      const Watcher& watcher) {
  {
    const MutexLock lock(mutex_);
    const auto found = running_.find(id);
    if (found != running_.end()) found->second.watchers.emplace(watch, watcher);
  }
  if (!watcher(Get(id))) Unwatch(id, watch);
}

template <typename Subject>
void JobRegistry<Subject>::Unwatch(const std::string& id, uint64_t watch) {
  Watcher removed;  // goes away without the lock
  const MutexLock lock(mutex_);
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  const auto at = found->second.watchers.find(watch);
  if (at == found->second.watchers.end()) return;
  removed = std::move(at->second);
  found->second.watchers.erase(at);
}

template <typename Subject>
void JobRegistry<Subject>::DismissWatchers(const absl::Status& why) {
  std::vector<Watchers> dismissed;
  {
    const MutexLock lock(mutex_);
    for (auto& [id, running] : running_) {
      dismissed.push_back(std::exchange(running.watchers, Watchers()));
    }
  }
  for (const Watchers& watchers : dismissed) {
    for (const auto& [watch, watcher] : watchers) watcher(why);
  }
}

template <typename Subject>
absl::StatusOr<std::shared_ptr<const Subject>> JobRegistry<Subject>::Get(
    const std::string& id) const {
  {
    const MutexLock lock(mutex_);
    const auto found = running_.find(id);
    if (found != running_.end()) return found->second.latest;
  }
  ASSIGN_OR_RETURN(const std::string bytes, options_.records.Get(id));
  return Parse<Subject>(bytes);
}

template <typename Subject>
std::vector<std::shared_ptr<const Subject>> JobRegistry<Subject>::List(const std::string& before,
                                                                       int64_t limit) const {
  // What runs is newer here than in the records, where there may be its intent.
  absl::btree_map<std::string, std::shared_ptr<const Subject>, std::greater<>> listed;
  for (const auto& [id, bytes] : options_.records.List(before, limit)) {
    absl::StatusOr<std::shared_ptr<const Subject>> job = Parse<Subject>(bytes);
    if (job.ok()) listed.emplace(id, *std::move(job));
  }
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, running] : running_) {
      if (before.empty() || id < before) listed[id] = running.latest;
    }
  }
  std::vector<std::shared_ptr<const Subject>> jobs;
  for (auto& [id, job] : listed) {
    if (std::ssize(jobs) == limit) break;
    jobs.push_back(std::move(job));
  }
  return jobs;
}

template <typename Subject>
JobRecord JobRegistry<Subject>::RecordOf(const Running& running) const {
  return {.number = running.number,
          .request_id = running.latest->request_id(),
          .content = running.content,
          .bytes = running.latest->SerializeAsString()};
}

template <typename Subject>
void JobRegistry<Subject>::Commit(std::shared_ptr<const Subject> intent,
                                  absl::AnyInvocable<void(absl::Status)> done) {
  JobRecord record;
  {
    const MutexLock lock(mutex_);
    Running& running = running_.at(intent->id());
    running.latest = intent;
    record = RecordOf(running);
  }
  const absl::Status begun = options_.records.Begin(record);
  if (begun.ok()) {
    const MutexLock lock(mutex_);
    running_.at(intent->id()).recorded = true;
  }
  done(begun);
}

template <typename Subject>
void JobRegistry<Subject>::OnChange(std::shared_ptr<const Subject> job) {
  const bool ended = job->has_end_time();
  int before = 0;
  Watchers watchers;
  {
    const MutexLock lock(mutex_);
    Running& running = running_.at(job->id());
    before = running.latest->state();
    running.latest = job;
    watchers = running.watchers;
  }
  if (ended) {
    // Recorded first, so that at any moment it is found in one place or the other.
    Record(job->id());
    TakeOut(job->id());
  }
  TellState(before, ended ? 0 : job->state());
  for (const auto& [watch, watcher] : watchers) {
    if (!watcher(job)) Unwatch(job->id(), watch);
  }
}

template <typename Subject>
void JobRegistry<Subject>::Record(const std::string& id) {
  JobRecord record;
  bool begun = false;
  {
    const MutexLock lock(mutex_);
    record = RecordOf(running_.at(id));
    begun = running_.at(id).recorded;
  }
  absl::Status recorded;
  // It failed before there was anything to intend, or has no intent. Its request id is taken all
  // the same.
  if (!begun) recorded = options_.records.Begin(record);
  if (recorded.ok()) recorded = options_.records.Finish(id, std::move(record.bytes));
  if (!recorded.ok()) {
    LogError("job_not_recorded", {{"job_id", id}, {"error", recorded.ToString()}});
  }
}

template <typename Subject>
void JobRegistry<Subject>::TellState(int from, int to) const {
  if (from != to && options_.on_state != nullptr) options_.on_state(from, to);
}

template class JobRegistry<v1::Operation>;
template class JobRegistry<v1::PipelineRun>;

}  // namespace crossmesh
