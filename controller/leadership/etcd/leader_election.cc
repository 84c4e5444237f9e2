#include "controller/leadership/etcd/leader_election.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "controller/leadership/etcd/election_calls.h"
#include "controller/store/epoch.h"

#include <random>
#include <utility>
#include <variant>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

// Of a lease's time: two renewals can fail before a term ends.
constexpr int kCallsInLease = 5;
constexpr absl::Duration kWatchPause = absl::Milliseconds(200);

std::string NewIncarnation() {
  std::random_device random;
  return absl::StrFormat("%08x%08x%08x%08x", random(), random(), random(), random());
}

absl::Status Check(const LeaderElection::Options& options) {
  RETURN_IF_ERROR(EtcdKeys::Check(options.cluster));
  if (options.address.empty() || absl::StrContains(options.address, ' ')) {
    return absl::InvalidArgumentError(absl::StrCat(
        "address \"", options.address, "\" of a candidate: expected one without a space"));
  }
  if (options.lease_time < absl::Seconds(1) ||
      options.lease_time != absl::Trunc(options.lease_time, absl::Seconds(1))) {
    return absl::InvalidArgumentError(
        absl::StrCat("lease: expected a number of whole seconds, "
                     "found ",
                     absl::FormatDuration(options.lease_time)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LeaderElection>> LeaderElection::Start(const Options& options,
                                                                      LeadershipListener listener) {
  RETURN_IF_ERROR(Check(options));
  ASSIGN_OR_RETURN(std::unique_ptr<EtcdClient> client, EtcdClient::Create(options.etcd));
  std::unique_ptr<LeaderElection> election(
      new LeaderElection(options, std::move(listener), std::move(client)));
  ASSIGN_OR_RETURN(
      election->loop_,
      EventLoop::Create(election->clock_, {.name = "election", .spin = absl::ZeroDuration()}));
  election->loop_->Start();
  election->loop_->Post(
      [&self = *election] { self.Perform(self.machine_.Start(self.clock_.Monotonic())); });
  return election;
}

LeaderElection::LeaderElection(const Options& options, LeadershipListener listener,
                               std::unique_ptr<EtcdClient> client)
    : options_(options),
      listener_(std::move(listener)),
      keys_(options.cluster),
      incarnation_(NewIncarnation()),
      call_timeout_(options.lease_time / kCallsInLease),
      client_(std::move(client)),
      machine_({.incarnation = incarnation_, .lease_time = options.lease_time}) {}

LeaderElection::~LeaderElection() {
  client_->Stop();
  if (loop_ != nullptr) loop_->Stop();
}

bool LeaderElection::leads() const {
  return absl::ToInt64Nanoseconds(clock_.Monotonic()) < leads_until_ns_;
}

void LeaderElection::Resign(absl::Duration wait) {
  Post(ResignRequested{});
  const absl::Duration end = clock_.Monotonic() + wait;
  const MutexLock lock(mutex_);
  for (absl::Duration left = wait; !resigned_ && left > absl::ZeroDuration();
       left = end - clock_.Monotonic()) {
    has_resigned_.WaitFor(mutex_, left);
  }
}

void LeaderElection::Post(ElectionEvent event) {
  loop_->Post([this, event = std::move(event)] { Handle(event); });
}

void LeaderElection::Handle(const ElectionEvent& event) {
  Perform(machine_.Handle(event, clock_.Monotonic()));
}

void LeaderElection::Perform(const std::vector<ElectionAction>& actions) {
  const std::optional<absl::Duration> until = machine_.leads_until();
  leads_until_ns_ = until.has_value() ? absl::ToInt64Nanoseconds(*until) : kNever;
  for (const ElectionAction& action : actions) {
    std::visit([this](const auto& each) { Do(each); }, action);
  }
}

void LeaderElection::Do(const ReadElection&) {
  client_->Txn(ReadElectionRequest(keys_, options_.identity), call_timeout_,
               [this](const absl::StatusOr<etcdserverpb::TxnResponse>& response) {
                 if (!response.ok()) return Post(StepFailed{response.status()});
                 const absl::StatusOr<ElectionReading> reading = ReadingOf(keys_, *response);
                 if (!reading.ok()) return Post(StepFailed{reading.status()});
                 Post(ElectionRead{*reading, EpochAt(clock_.Now())});
               });
}

void LeaderElection::Do(const ObtainLease&) {
  etcdserverpb::LeaseGrantRequest request;
  request.set_ttl(absl::ToInt64Seconds(options_.lease_time));
  client_->LeaseGrant(request, call_timeout_,
                      [this, asked_at = clock_.Monotonic()](
                          const absl::StatusOr<etcdserverpb::LeaseGrantResponse>& response) {
                        if (!response.ok()) return Post(StepFailed{response.status()});
                        Post(LeaseGranted{response->id(), asked_at});
                      });
}

void LeaderElection::Do(const Campaign& action) {
  const CampaignCall call{
      .keys = keys_,
      .identity = options_.identity,
      .leader = {.address = options_.address, .incarnation = incarnation_, .lease = action.lease},
      .epoch = action.epoch,
      .epoch_revision = action.epoch_revision};
  client_->Txn(CampaignRequest(call), call_timeout_,
               [this](const absl::StatusOr<etcdserverpb::TxnResponse>& response) {
                 if (!response.ok()) return Post(StepFailed{response.status()});
                 if (!response->succeeded()) return Post(CampaignLost{});
                 Post(CampaignWon{response->header().revision()});
               });
}

void LeaderElection::Do(const RenewLease& action) {
  etcdserverpb::LeaseKeepAliveRequest request;
  request.set_id(action.lease);
  client_->LeaseKeepAlive(
      request, call_timeout_,
      [this, lease = action.lease, asked_at = clock_.Monotonic()](
          const absl::StatusOr<etcdserverpb::LeaseKeepAliveResponse>& response) {
        if (!response.ok()) return Post(RenewalFailed{lease});
        if (response->ttl() <= 0) return Post(LeaseExpired{lease});
        Post(LeaseRenewed{lease, asked_at});
      });
}

void LeaderElection::Do(const RevokeLease& action) {
  etcdserverpb::LeaseRevokeRequest request;
  request.set_id(action.lease);
  client_->LeaseRevoke(request, call_timeout_,
                       [this](const absl::StatusOr<etcdserverpb::LeaseRevokeResponse>& response) {
                         if (response.ok() || absl::IsNotFound(response.status()))
                           return Post(LeaseRevoked{});
                         Post(StepFailed{response.status()});
                       });
}

void LeaderElection::Do(const WatchLeader& action) {
  etcdserverpb::WatchCreateRequest request;
  request.set_key(keys_.leader());
  request.set_start_revision(action.from_revision);
  const auto gone = [this, number = ++watches_] {
    if (number == watches_) Handle(LeaderGone{});
  };
  cancel_watch_ = client_->Watch(
      std::move(request), {.on_response =
                               [this, gone](const etcdserverpb::WatchResponse& response) {
                                 for (const etcdserverpb::Event& event : response.events()) {
                                   if (event.type() == etcdserverpb::Event::DELETE) {
                                     loop_->Post(gone);
                                   }
                                 }
                               },
                           // It is looked at again, but not as fast as watches can break.
                           .on_end =
                               [this, gone](const absl::Status&) {
                                 loop_->Post([this, gone] { loop_->RunAfter(kWatchPause, gone); });
                               }});
}

void LeaderElection::Do(const StopWatching&) {
  ++watches_;
  std::exchange(cancel_watch_, [] {})();
}

void LeaderElection::Do(const WakeAt& action) {
  loop_->Cancel(wake_);
  wake_ = loop_->RunAfter(action.time - clock_.Monotonic(), [this] { Handle(TimeHasPassed{}); });
}

void LeaderElection::Do(const TellLeading& action) {
  LogInfo("controller_leads", {{"epoch", action.epoch}, {"fence", action.fence}});
  listener_.on_leading(action.epoch, action.fence);
}

void LeaderElection::Do(const TellNotLeading& action) {
  LogInfo("controller_does_not_lead",
          {{"leader", action.leader.value_or("")}, {"reason", action.why.message()}});
  listener_.on_not_leading(action.leader, action.why);
}

void LeaderElection::Do(const TellResigned&) {
  const MutexLock lock(mutex_);
  resigned_ = true;
  has_resigned_.SignalAll();
}

}  // namespace crossmesh
