#include "tests/simulation/simulated_candidate.h"

#include "controller/leadership/etcd/election_calls.h"
#include "controller/store/epoch.h"

#include <algorithm>
#include <utility>
#include <variant>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kLease = absl::Seconds(5);
constexpr absl::Duration kCallTimeout = absl::Milliseconds(1667);  // a third of it
constexpr absl::Duration kWatchPause = absl::Milliseconds(200);

}  // namespace

SimulatedCandidate::SimulatedCandidate(SimulatedNode& node, SimulatedEtcdCalls& calls,
                                       Listener listener)
    : node_(node),
      calls_(calls),
      listener_(std::move(listener)),
      incarnation_(absl::StrCat(node.name(), "-", node.life())),
      machine_({.incarnation = incarnation_, .lease_time = kLease}) {}

void SimulatedCandidate::Perform(const std::vector<ElectionAction>& actions) {
  for (const ElectionAction& action : actions) {
    std::visit([this](const auto& each) { Do(each); }, action);
  }
}

void SimulatedCandidate::Do(const ReadElection& /*action*/) {
  calls_.Call<etcdserverpb::TxnResponse>(
      "is read by a candidate", kCallTimeout,
      [](SimulatedEtcd& etcd) {
        return etcd.Txn(ReadElectionRequest(SimulatedEtcd::Keys(), SimulatedEtcd::Identity()));
      },
      [this](const absl::StatusOr<etcdserverpb::TxnResponse>& response) {
        if (!response.ok()) return Handle(StepFailed{response.status()});
        const absl::StatusOr<ElectionReading> reading = ReadingOf(SimulatedEtcd::Keys(), *response);
        if (!reading.ok()) return Handle(StepFailed{reading.status()});
        Handle(ElectionRead{*reading, EpochAt(node_.clock().Now())});
      });
}

void SimulatedCandidate::Do(const ObtainLease& /*action*/) {
  calls_.Call<int64_t>(
      "is asked for a lease", kCallTimeout, [](SimulatedEtcd& etcd) { return etcd.Grant(kLease); },
      [this, asked_at = Now()](const absl::StatusOr<int64_t>& lease) {
        if (!lease.ok()) return Handle(StepFailed{lease.status()});
        Handle(LeaseGranted{*lease, asked_at});
      });
}

void SimulatedCandidate::Do(const Campaign& action) {
  const CampaignCall call{
      .keys = SimulatedEtcd::Keys(),
      .identity = SimulatedEtcd::Identity(),
      .leader = {.address = node_.name(), .incarnation = incarnation_, .lease = action.lease},
      .epoch = action.epoch,
      .epoch_revision = action.epoch_revision};
  calls_.Call<etcdserverpb::TxnResponse>(
      "hears a campaign", kCallTimeout,
      [request = CampaignRequest(call)](SimulatedEtcd& etcd) { return etcd.Txn(request); },
      [this](const absl::StatusOr<etcdserverpb::TxnResponse>& response) {
        if (!response.ok()) return Handle(StepFailed{response.status()});
        if (!response->succeeded()) return Handle(CampaignLost{});
        Handle(CampaignWon{response->header().revision()});
      });
}

void SimulatedCandidate::Do(const RenewLease& action) {
  calls_.Call<bool>(
      "is asked to renew a lease", kCallTimeout,
      [lease = action.lease](SimulatedEtcd& etcd) { return etcd.Renew(lease); },
      [this, lease = action.lease, asked_at = Now()](const absl::StatusOr<bool>& renewed) {
        if (!renewed.ok()) return Handle(RenewalFailed{lease});
        if (!*renewed) return Handle(LeaseExpired{lease});
        Handle(LeaseRenewed{lease, asked_at});
      });
}

void SimulatedCandidate::Do(const RevokeLease& action) {
  calls_.Call<bool>(
      "is asked to revoke a lease", kCallTimeout,
      [lease = action.lease](SimulatedEtcd& etcd) {
        etcd.Revoke(lease);
        return true;
      },
      [this](const absl::StatusOr<bool>& revoked) {
        if (!revoked.ok()) return Handle(StepFailed{revoked.status()});
        Handle(LeaseRevoked{});
      });
}

void SimulatedCandidate::Do(const WatchLeader& action) {
  const auto gone = [this, number = ++watches_] {
    if (number == watches_) Handle(LeaderGone{});
  };
  watch_ = calls_.Watch(
      action.from_revision,
      [gone](const etcdserverpb::WatchResponse& response) {
        for (const etcdserverpb::Event& event : response.events()) {
          const bool is_leader = event.kv().key() == SimulatedEtcd::Keys().leader();
          if (is_leader && event.type() == etcdserverpb::Event::DELETE) gone();
        }
      },
      [this, gone](const absl::Status& /*status*/) { node_.After(kWatchPause, gone); });
}

void SimulatedCandidate::Do(const StopWatching& /*action*/) {
  ++watches_;
  if (watch_ != nullptr) watch_->End(0, absl::CancelledError("it is over"));
  watch_ = nullptr;
}

void SimulatedCandidate::Do(const WakeAt& action) {
  const absl::Duration delay = std::max(action.time - Now(), absl::ZeroDuration());
  node_.After(delay, [this, number = ++wakes_] {
    if (number == wakes_) Handle(TimeHasPassed{});
  });
}

void SimulatedCandidate::Do(const TellLeading& action) {
  listener_.on_leading(action.epoch, action.fence);
}

void SimulatedCandidate::Do(const TellNotLeading& /*action*/) { listener_.on_not_leading(); }

}  // namespace crossmesh
