#include "tests/reliability/reshard_load.h"

#include "client/cli/cli.h"
#include "client/pause.h"
#include "common/base/check.h"

#include <algorithm>
#include <set>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(20);
constexpr absl::Duration kEndsWithin = absl::Seconds(30);
// A controller keeps the last thousand of all clients that have ended.
constexpr int kRecordsMax = 400;

Client ConnectTo(const LiveCluster& cluster) {
  absl::StatusOr<Client> client =
      Client::Connect(cluster.controller_address(), {.retry_for = kEndsWithin});
  CHECK_OK(client.status());
  return *std::move(client);
}

bool HasReceiver(const v1::Replica& replica, const std::string& worker) {
  return absl::StrContains(replica.devices(), absl::StrCat(worker, ".0"));
}

}  // namespace

ReshardLoad::ReshardLoad(const Environment& environment, ReshardOptions options)
    : environment_(environment),
      options_(std::move(options)),
      client_(ConnectTo(environment.cluster)) {}

void ReshardLoad::Run(const std::atomic<bool>& stop) {
  while (!stop) {
    if (Prepare()) {
      Step();
    } else {
      Pause(kPause);
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
  const absl::StatusOr<v1::Operation> operation =
      client_.Execute(request, [&ids](const v1::Operation& now) { ids.insert(now.id()); });
  if (!operation.ok()) {
    if (!ids.empty()) {
      environment_.violations.Add(absl::StrCat(
          "operation ", *ids.begin(), " began, and then: ", operation.status().ToString()));
    }
    ++counts_.refused;
    version_ = before;
    return;
  }
  if (ids.size() > 1) {
    environment_.violations.Add(
        absl::StrCat("request ", request.request_id(), " began ", ids.size(), " operations"));
  }
  ++counts_.ended[std::string(StateName(operation->state()))];
  ended_[operation->id()] = *operation;
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
  const absl::Status has_new = reshard_->Check(worker, version_);
  const absl::Status has_old = reshard_->Check(worker, versions_[worker]);
  if (environment_.starts.Of(worker) != starts || starts % 2 == 1) return;  // killed meanwhile
  if (has_new.ok()) {
    versions_[worker] = version_;
  } else if (committed || !has_old.ok()) {
    environment_.violations.Add(absl::StrCat(
        "operation ", operation.id(), ", ", StateName(operation.state()), ", worker ", worker,
        committed ? ": committed, found " : ": expected the new version or the one before, found ",
        has_new.ToString(), "; ", has_old.ToString()));
  }
}

void ReshardLoad::CheckRecords() {
  int checked = 0;
  for (auto newest = ended_.rbegin(); newest != ended_.rend(); ++newest) {
    if (++checked > kRecordsMax) return;
    const auto& [id, ended] = *newest;
    const absl::StatusOr<v1::Operation> now = client_.GetOperation(id);
    if (now.ok() && now->state() == ended.state()) continue;
    environment_.violations.Add(
        absl::StrCat("operation ", id, " ended ", StateName(ended.state()), ", and is now ",
                     now.ok() ? StateName(now->state()) : now.status().ToString()));
  }
}

}  // namespace crossmesh
