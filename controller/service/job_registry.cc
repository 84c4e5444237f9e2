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
absl::StatusOr<std::vector<JobRecords::Unfinished>> JobRegistry<Subject>::Load() {
  ASSIGN_OR_RETURN(std::vector<JobRecords::Unfinished> left, options_.records.Load());
  options_.numbers.SkipTo(options_.records.newest_loaded());
  return left;
}

template <typename Subject>
absl::Status JobRegistry<Subject>::Resume(
    const JobRecords::Unfinished& job,
    absl::FunctionRef<absl::Status(Entry, const std::string& resumption)> begin) {
  Entry entry{.number = job.number};
  const std::string id = options_.records.IdOf(job.number);
  if (!entry.job.ParseFromString(job.shown) || entry.job.id() != id) {
    return absl::DataLossError(absl::StrCat("stored ", options_.records.noun(), " ", id,
                                            ": expected one that parses, found something else"));
  }
  {
    const MutexLock lock(mutex_);
    running_request_[entry.job.request_id()] = id;
    running_[id] = {.number = job.number,
                    .content = job.content,
                    .latest = std::make_shared<const Subject>(entry.job),
                    .recorded = true};
  }
  TellState(0, entry.job.state());
  if (!entry.job.has_end_time()) return begin(std::move(entry), job.resumption);
  // It ended before it had begun: only the second of two commits is missing.
  Finish(std::make_shared<const Subject>(std::move(entry.job)), [](const absl::Status&) {});
  return absl::OkStatus();
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
    if (found != running_.end()) {
      found->second.watchers.emplace(watch, watcher);
      if (!found->second.recorded) return;
    }
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
    if (found != running_.end() && found->second.recorded) return found->second.latest;
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
      if (running.recorded && (before.empty() || id < before)) listed[id] = running.latest;
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
JobRecord JobRegistry<Subject>::RecordOf(const Running& running, const Subject& shown) const {
  return {.number = running.number,
          .request_id = shown.request_id(),
          .content = running.content,
          .shown = shown.SerializeAsString()};
}

template <typename Subject>
void JobRegistry<Subject>::Commit(std::shared_ptr<const Subject> intent, std::string resumption,
                                  Done done) {
  JobRecord record;
  bool recorded = false;
  {
    const MutexLock lock(mutex_);
    Running& running = running_.at(intent->id());
    CHECK(!running.committing) << intent->id() << " is being committed";
    running.committing = true;
    running.latest = intent;
    recorded = running.recorded;
    record = RecordOf(running, *intent);
  }
  record.resumption = std::move(resumption);
  auto committed = [this, id = intent->id(), done = std::move(done)](absl::Status status) mutable {
    options_.queue.Post([this, id, status] { OnIntent(id, status); });
    done(std::move(status));
  };
  if (recorded) {
    options_.records.Amend(record, std::move(committed));
  } else {
    options_.records.Begin(record, std::move(committed));
  }
}

template <typename Subject>
void JobRegistry<Subject>::OnIntent(const std::string& id, const absl::Status& status) {
  std::shared_ptr<const Subject> shown;
  std::shared_ptr<Ending> ending;
  Watchers watchers;
  {
    const MutexLock lock(mutex_);
    Running& running = running_.at(id);
    running.committing = false;
    ending = std::move(running.ending);
    if (status.ok() && !std::exchange(running.recorded, true)) {
      shown = running.latest;
      watchers = running.watchers;
    }
  }
  if (ending != nullptr) return Record(std::move(ending));
  Tell(watchers, shown);
}

template <typename Subject>
void JobRegistry<Subject>::RecordProgress(const std::string& id, std::string progress, Done done) {
  uint64_t number = 0;
  {
    const MutexLock lock(mutex_);
    number = running_.at(id).number;
  }
  options_.records.RecordProgress(number, std::move(progress), std::move(done));
}

template <typename Subject>
typename JobRegistry<Subject>::Watchers JobRegistry<Subject>::Change(
    std::shared_ptr<const Subject> job) {
  int before = 0;
  Watchers watchers;
  {
    const MutexLock lock(mutex_);
    Running& running = running_.at(job->id());
    before = running.latest->state();
    running.latest = job;
    if (running.recorded) watchers = running.watchers;
  }
  TellState(before, job->has_end_time() ? 0 : job->state());
  return watchers;
}

template <typename Subject>
void JobRegistry<Subject>::Tell(const Watchers& watchers,
                                const std::shared_ptr<const Subject>& job) {
  for (const auto& [watch, watcher] : watchers) {
    if (!watcher(job)) Unwatch(job->id(), watch);
  }
}

template <typename Subject>
void JobRegistry<Subject>::OnChange(std::shared_ptr<const Subject> job) {
  Tell(Change(job), job);
}

template <typename Subject>
void JobRegistry<Subject>::Finish(std::shared_ptr<const Subject> job, Done done) {
  Record(std::make_shared<Ending>(Ending{std::move(job), std::move(done)}));
}

template <typename Subject>
void JobRegistry<Subject>::Record(std::shared_ptr<Ending> ending) {
  JobRecord record;
  bool begun = false;
  {
    const MutexLock lock(mutex_);
    Running& running = running_.at(ending->job->id());
    if (running.committing) {
      running.ending = std::move(ending);
      return;
    }
    record = RecordOf(running, *ending->job);
    begun = running.recorded;
  }
  auto recorded = [this, ending](const absl::Status& status) {
    options_.queue.Post([this, ending, status] { OnRecorded(ending, status); });
  };
  if (begun) return options_.records.Finish(record, std::move(recorded));
  // It failed before there was anything to intend, or has no intent. Its request id is taken all
  // the same.
  options_.records.Begin(record, [this, ending, record, recorded = std::move(recorded)](
                                     const absl::Status& status) mutable {
    if (!status.ok()) return recorded(status);
    {
      const MutexLock lock(mutex_);
      running_.at(ending->job->id()).recorded = true;
    }
    options_.records.Finish(record, std::move(recorded));
  });
}

template <typename Subject>
void JobRegistry<Subject>::OnRecorded(const std::shared_ptr<Ending>& ending,
                                      const absl::Status& status) {
  if (status.ok() || absl::IsAborted(status)) return End(ending, status);
  LogError("job_not_recorded", {{"job_id", ending->job->id()}, {"error", status.ToString()}});
  options_.queue.PostAfter(kRecordPause, [this, ending] { Record(ending); });
}

template <typename Subject>
void JobRegistry<Subject>::End(const std::shared_ptr<Ending>& ending, const absl::Status& status) {
  const std::shared_ptr<const Subject>& job = ending->job;
  if (!status.ok()) {
    const Running left = TakeOut(job->id());
    TellState(left.latest->state(), 0);
    for (const auto& [watch, watcher] : left.watchers) watcher(status);
  } else {
    // Out of here once it is found in the records, so that at any moment it is in one place or the
    // other.
    const Watchers watchers = Change(job);
    TakeOut(job->id());
    Tell(watchers, job);
  }
  ending->done(status);
}

template <typename Subject>
void JobRegistry<Subject>::TellState(int from, int to) const {
  if (from != to && options_.on_state != nullptr) options_.on_state(from, to);
}

template class JobRegistry<v1::Operation>;
template class JobRegistry<v1::PipelineRun>;

}  // namespace crossmesh
