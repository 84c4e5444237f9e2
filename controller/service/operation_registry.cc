#include "controller/service/operation_registry.h"

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/wire/time_codec.h"
#include "controller/service/operation_codec.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

Digest ContentOf(const v1::ReshardSpec& spec) { return Digest::Of(spec.SerializeAsString()); }

absl::Status OtherContent(absl::string_view request_id, absl::string_view id) {
  return absl::AlreadyExistsError(
      absl::StrCat("request_id ", request_id, " began operation ", id, " with other content"));
}

absl::StatusOr<v1::Operation> Parse(const std::string& bytes) {
  v1::Operation operation;
  if (!operation.ParseFromString(bytes)) {
    return absl::InternalError("a stored operation does not parse");
  }
  return operation;
}

OperationResult ResultOf(OperationState state) {
  switch (state) {
    case OperationState::kCommitted:
      return OperationResult::kCommitted;
    case OperationState::kPartial:
      return OperationResult::kPartial;
    case OperationState::kCancelled:
      return OperationResult::kCancelled;
    case OperationState::kPreparing:
    case OperationState::kRunning:
    case OperationState::kVerifying:
    case OperationState::kFailed:
      break;
  }
  return OperationResult::kFailed;
}

}  // namespace

absl::StatusOr<std::optional<std::string>> OperationRegistry::Find(
    const v1::ReshardSpec& spec, const std::string& request_id) const {
  const Digest content = ContentOf(spec);
  {
    const MutexLock lock(mutex_);
    const auto id = running_request_.find(request_id);
    if (id != running_request_.end()) {
      if (running_.at(id->second).content == content) return id->second;
      return OtherContent(request_id, id->second);
    }
  }
  return options_.records.FindRequest(request_id, content);
}

absl::StatusOr<OperationRegistry::Entry> OperationRegistry::Open(const v1::ReshardSpec& spec,
                                                                 const std::string& request_id) {
  ASSIGN_OR_RETURN(const std::optional<std::string> known, Find(spec, request_id));
  if (known.has_value()) return Entry{.id = *known};
  Running running{.content = ContentOf(spec), .request_id = request_id};
  running.shown = std::make_shared<const v1::ReshardSpec>(SpecToShow(spec));
  auto first = std::make_shared<v1::Operation>();
  *first->mutable_reshard() = *running.shown;
  first->set_request_id(request_id);
  first->set_state(v1::OPERATION_STATE_PREPARING);
  first->set_attempt(1);
  first->set_revision(1);
  *first->mutable_create_time() = ToProto(options_.clock.Now());

  const MutexLock lock(mutex_);
  const auto raced = running_request_.find(request_id);
  if (raced != running_request_.end()) {
    if (running_.at(raced->second).content == running.content) return Entry{.id = raced->second};
    return OtherContent(request_id, raced->second);
  }
  const uint64_t number = options_.epoch + ++opened_;
  const std::string id = OperationId(number);
  first->set_id(id);
  running.number = number;
  running.latest = std::move(first);
  running_request_[request_id] = id;
  running_.emplace(id, std::move(running));
  ++in_state_[v1::OPERATION_STATE_PREPARING];
  return Entry{.id = id, .number = number, .is_new = true};
}

OperationRegistry::Running OperationRegistry::TakeOut(const std::string& id) {
  const MutexLock lock(mutex_);
  const auto found = running_.find(id);
  CHECK(found != running_.end()) << id << " does not run";
  Running running = std::move(found->second);
  running_request_.erase(running.request_id);
  running_.erase(found);
  return running;
}

void OperationRegistry::Withdraw(const std::string& id, const absl::Status& why) {
  const Running withdrawn = TakeOut(id);
  CountStates(withdrawn.latest->state(), v1::OPERATION_STATE_UNSPECIFIED);
  for (const auto& watcher : withdrawn.watchers) watcher->OnNoOperation(why);
}

void OperationRegistry::Watch(const std::string& id,
                              const std::shared_ptr<OperationWatcher>& watcher) {
  // On the queue, so that a watcher hears of changes in their order.
  const bool taken = options_.queue.Post([this, id, watcher] {
    std::shared_ptr<const v1::Operation> latest;
    {
      const MutexLock lock(mutex_);
      const auto found = running_.find(id);
      if (found != running_.end()) {
        found->second.watchers.push_back(watcher);
        latest = found->second.latest;
      }
    }
    if (latest != nullptr) {
      if (!watcher->OnOperation(*latest)) Unwatch(id, watcher.get());
      return;
    }
    const absl::StatusOr<v1::Operation> finished = Get(id);
    if (finished.ok()) {
      watcher->OnOperation(*finished);
    } else {
      watcher->OnNoOperation(finished.status());
    }
  });
  if (!taken) watcher->OnNoOperation(absl::UnavailableError("the controller is stopping"));
}

void OperationRegistry::Unwatch(const std::string& id, const OperationWatcher* watcher) {
  std::shared_ptr<OperationWatcher> removed;  // goes away without the lock
  const MutexLock lock(mutex_);
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  Watchers& watchers = found->second.watchers;
  const auto at = std::find_if(watchers.begin(), watchers.end(),
                               [&](const auto& w) { return w.get() == watcher; });
  if (at == watchers.end()) return;
  removed = std::move(*at);
  watchers.erase(at);
}

void OperationRegistry::DismissWatchers(const absl::Status& why) {
  Watchers dismissed;
  {
    const MutexLock lock(mutex_);
    for (auto& [id, running] : running_) {
      dismissed.insert(dismissed.end(), running.watchers.begin(), running.watchers.end());
      running.watchers.clear();
    }
  }
  for (const auto& watcher : dismissed) watcher->OnNoOperation(why);
}

absl::StatusOr<v1::Operation> OperationRegistry::Get(const std::string& id) const {
  {
    const MutexLock lock(mutex_);
    const auto found = running_.find(id);
    if (found != running_.end()) return *found->second.latest;
  }
  ASSIGN_OR_RETURN(const std::string bytes, options_.records.Get(id));
  return Parse(bytes);
}

std::vector<v1::Operation> OperationRegistry::List(const std::string& before, int64_t limit) const {
  // What runs is newer in the registry than in the records.
  absl::btree_map<std::string, v1::Operation, std::greater<>> listed;
  for (const auto& [id, bytes] : options_.records.List(before, limit)) {
    absl::StatusOr<v1::Operation> operation = Parse(bytes);
    if (operation.ok()) listed.emplace(id, *std::move(operation));
  }
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, running] : running_) {
      if (before.empty() || id < before) listed[id] = *running.latest;
    }
  }
  std::vector<v1::Operation> operations;
  for (auto& [id, operation] : listed) {
    if (static_cast<int64_t>(operations.size()) == limit) break;
    operations.push_back(std::move(operation));
  }
  return operations;
}

std::shared_ptr<const v1::Operation> OperationRegistry::Update(const OperationSnapshot& operation) {
  auto updated = std::make_shared<v1::Operation>(ToProto(operation));
  std::shared_ptr<const v1::ReshardSpec> shown;
  v1::OperationState from = v1::OPERATION_STATE_UNSPECIFIED;
  {
    const MutexLock lock(mutex_);
    const Running& running = running_.at(operation.id);
    updated->set_request_id(running.request_id);
    shown = running.shown;
    from = running.latest->state();
  }
  *updated->mutable_reshard() = *shown;
  {
    const MutexLock lock(mutex_);
    running_.at(operation.id).latest = updated;
  }
  CountStates(from, updated->state());
  return updated;
}

void OperationRegistry::CountStates(v1::OperationState from, v1::OperationState to) {
  if (from == to) return;
  constexpr std::pair<v1::OperationState, RunningState> kStates[] = {
      {v1::OPERATION_STATE_PREPARING, RunningState::kPreparing},
      {v1::OPERATION_STATE_RUNNING, RunningState::kRunning},
      {v1::OPERATION_STATE_VERIFYING, RunningState::kVerifying}};
  std::array<int64_t, v1::OperationState_ARRAYSIZE> in_state;
  {
    const MutexLock lock(mutex_);
    --in_state_[from];
    ++in_state_[to];
    in_state = in_state_;
  }
  for (const auto& [state, label] : kStates) {
    options_.metrics.SetOperationsInProgress(label, in_state[state]);
  }
}

void OperationRegistry::CommitIntent(const OperationSnapshot& operation,
                                     absl::AnyInvocable<void(absl::Status)> done) {
  const std::shared_ptr<const v1::Operation> intent = Update(operation);
  OperationRecord record{.request_id = intent->request_id(), .bytes = intent->SerializeAsString()};
  {
    const MutexLock lock(mutex_);
    const Running& running = running_.at(operation.id);
    record.number = running.number;
    record.content = running.content;
  }
  const absl::Status begun = options_.records.Begin(record);
  if (begun.ok()) {
    const PlanFigures& figures = operation.planned->plan().figures();
    options_.metrics.PlanUsed({.strategy = figures.strategy,
                               .network_bytes = figures.network_bytes,
                               .least_network_bytes = figures.least_network_bytes});
    const MutexLock lock(mutex_);
    running_.at(operation.id).recorded = true;
  }
  done(begun);
}

void OperationRegistry::OnChange(const OperationSnapshot& operation) {
  const std::shared_ptr<const v1::Operation> now = Update(operation);
  Watchers watchers;
  {
    const MutexLock lock(mutex_);
    watchers = running_.at(operation.id).watchers;
  }
  for (const auto& watcher : watchers) {
    if (!watcher->OnOperation(*now)) Unwatch(operation.id, watcher.get());
  }
}

void OperationRegistry::OnFinish(const OperationSnapshot& operation) {
  const std::shared_ptr<const v1::Operation> last = Update(operation);
  Running ended;
  {
    const MutexLock lock(mutex_);
    ended = running_.at(operation.id);
  }
  // Recorded first, so that at any moment it is found in one place or the other.
  Record(ended);
  TakeOut(operation.id);
  RecordMetrics(operation);
  LogInfo("operation_ended", {{"operation_id", operation.id},
                              {"state", OperationStateName(operation.state)},
                              {"attempt", operation.attempt},
                              {"seconds", last->report().total_seconds()},
                              {"error", operation.error.message()}});
  for (const auto& watcher : ended.watchers) watcher->OnOperation(*last);
}

void OperationRegistry::Record(const Running& ended) {
  const std::string bytes = ended.latest->SerializeAsString();
  const std::string& id = ended.latest->id();
  absl::Status recorded;
  if (!ended.recorded) {
    // It failed before there was anything to intend. Its request id is taken all the same.
    recorded = options_.records.Begin({ended.number, ended.request_id, ended.content, bytes});
  }
  if (recorded.ok()) recorded = options_.records.Finish(id, bytes);
  if (!recorded.ok()) {
    LogError("operation_not_recorded", {{"operation_id", id}, {"error", recorded.ToString()}});
  }
}

void OperationRegistry::RecordMetrics(const OperationSnapshot& operation) {
  const OperationReport& report = *operation.report;
  ControllerMetrics::OperationFacts facts{.result = ResultOf(operation.state),
                                          .duration = report.total,
                                          .destination_bytes = report.destination_bytes};
  if (operation.planned != nullptr) {
    const PlanFigures& figures = operation.planned->plan().figures();
    facts.strategy = figures.strategy;
    if (operation.state == OperationState::kCommitted) {
      facts.transfer = report.transfer;
      facts.bound = absl::Seconds(figures.bound.seconds);
    }
  }
  if (report.dispatch > absl::ZeroDuration()) options_.metrics.Dispatched(report.dispatch);
  options_.metrics.OperationEnded(facts);
}

}  // namespace crossmesh
