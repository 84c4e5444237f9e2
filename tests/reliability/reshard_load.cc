#include "tests/reliability/reshard_load.h"

#include "client/outcome.h"
#include "common/base/clock.h"
#include "tests/reliability/load_client.h"

#include <algorithm>
#include <set>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

bool HasReceiver(const v1::Replica& replica, const std::string& worker) {
  return absl::StrContains(replica.devices(), absl::StrCat(worker, ".0"));
}

}  // namespace

ReshardLoad::ReshardLoad(const LoadEnvironment& environment, ReshardOptions options)
    : environment_(environment),
      options_(std::move(options)),
      client_(ConnectForLoad(environment.cluster)) {}

void ReshardLoad::Run(const std::atomic<bool>& stop) {
  while (!stop) {
    if (Prepare()) {
      Step();
    } else {
      PauseOfLoad();
    }
  }
}

bool ReshardLoad::Prepare() {
  if (reshard_ == nullptr) {
    absl::StatusOr<std::unique_ptr<ReshardCase>> made =
        ReshardCase::Create(options_, environment_.cluster);
    if (!made.ok()) return false;
    reshard_ = *std::move(made);
  }
  for (const std::string& worker : environment_.cluster.workers()) {
    const int starts = environment_.starts.Of(worker);
    if (prepared_.contains(worker) && prepared_[worker] == starts) continue;
    // Its storages may be there already, where another start came in between.
    if (!reshard_->Prepare(worker).ok() && starts == environment_.starts.Of(worker)) return false;
    prepared_[worker] = starts;
    versions_[worker] = 0;
  }
  return true;
}

void ReshardLoad::Step() {
  const uint8_t before = version_;
  version_ = version_ == 255 ? 1 : version_ + 1;
  if (!reshard_->FillSource(version_).ok()) return;
  v1::ExecuteReshardRequest request;
  *request.mutable_spec() = reshard_->spec();
  request.set_request_id(NewRequestId());
  const std::map<std::string, int> starts = prepared_;
  std::set<std::string> ids;
  const RealClock clock;
  const absl::Duration begin = clock.Monotonic();
  const absl::StatusOr<v1::Operation> operation =
      client_.Execute(request, [&ids](const v1::Operation& now) { ids.insert(now.id()); });
  if (!operation.ok()) {
    if (!ids.empty()) {
      environment_.violations.Add(absl::StrCat(
          "operation ", *ids.begin(), " began, and then: ", operation.status().ToString()));
    }
    ++refused_;
    version_ = before;
    return;
  }
  if (ids.size() > 1) {
    environment_.violations.Add(
        absl::StrCat("request ", request.request_id(), " began ", ids.size(), " operations"));
  }
  const absl::Duration took = clock.Monotonic() - begin;
  longest_ = std::max(longest_, took);
  if (took > kEndsWithin) {
    environment_.violations.Add(
        absl::StrCat("operation ", operation->id(), " ended after ", absl::FormatDuration(took)));
  }
  ++counts_[StateName(operation->state())];
  ended_[environment_.ended.Count()] = *operation;
  CheckOutcome(*operation, starts);
}

void ReshardLoad::CheckOutcome(const v1::Operation& operation,
                               const std::map<std::string, int>& starts) {
  for (const std::string& worker : reshard_->receivers()) {
    const auto replica = std::ranges::find_if(
        operation.replicas(), [&](const v1::Replica& r) { return HasReceiver(r, worker); });
    const bool committed =
        replica != operation.replicas().end() && replica->state() == v1::REPLICA_STATE_COMMITTED;
    // What was held by a process that is gone says nothing, nor does one that is being started.
    if (environment_.starts.Of(worker) == starts.at(worker)) {
      CheckReceiver(operation, worker, committed);
    }
  }
}

void ReshardLoad::CheckReceiver(const v1::Operation& operation, const std::string& worker,
                                bool committed) {
  const int starts = environment_.starts.Of(worker);
  const absl::StatusOr<bool> is_dirty = reshard_->IsDirty(worker);
  const absl::Status has_new = reshard_->Check(worker, version_);
  const std::optional<uint8_t> old = versions_[worker];
  const absl::Status has_old =
      old.has_value() ? reshard_->Check(worker, *old) : absl::DataLossError("it was dirty before");
  if (environment_.starts.Of(worker) != starts || starts % 2 == 1) return;  // killed meanwhile
  const bool may_be_dirty = options_.binding == v1::BINDING_MODE_IN_PLACE && !committed;
  if (may_be_dirty && is_dirty.ok() && *is_dirty) {
    versions_[worker] = std::nullopt;
  } else if (has_new.ok() && is_dirty.ok() && !*is_dirty) {
    versions_[worker] = version_;
  } else if (committed || !has_old.ok()) {
    environment_.violations.Add(absl::StrCat(
        options_.destination_storage, ", operation ", operation.id(), ", ",
        StateName(operation.state()), ", worker ", worker,
        committed ? ": committed, found " : ": expected the new version or the one before, found ",
        has_new.ToString(), "; ", has_old.ToString(), is_dirty.ok() && *is_dirty ? "; dirty" : ""));
  }
}

void ReshardLoad::Check() {
  for (const auto& [place, ended] : ended_) {
    if (!environment_.ended.IsKept(place)) continue;
    const absl::StatusOr<v1::Operation> now = client_.GetOperation(ended.id());
    if (now.ok() && now->state() == ended.state()) continue;
    environment_.violations.Add(
        absl::StrCat("operation ", ended.id(), " ended ", StateName(ended.state()), ", and is now ",
                     now.ok() ? StateName(now->state()) : now.status().ToString()));
  }
}

std::string ReshardLoad::Summary() const {
  std::string text;
  for (const auto& [state, count] : counts_) absl::StrAppend(&text, state, " ", count, ", ");
  return absl::StrCat(text, "refused ", refused_, ", longest ",
                      absl::FormatDuration(absl::Trunc(longest_, absl::Milliseconds(1))));
}

}  // namespace crossmesh
