#include "controller/store/etcd/etcd_follower.h"

#include "common/base/backoff.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

#include <functional>
#include <random>

#include <absl/status/statusor.h>

namespace crossmesh {
namespace {

constexpr Backoff::Options kPauses = {.initial = absl::Milliseconds(20), .max = absl::Seconds(1)};

}  // namespace

absl::Status EtcdFollower::Start() {
  RETURN_IF_ERROR(Load());
  thread_ = Thread("etcd-follower", [this] { Run(); });
  return absl::OkStatus();
}

void EtcdFollower::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    is_stopping_.SignalAll();
  }
  thread_.Join();
}

EtcdCluster EtcdFollower::cluster() const {
  return {.identity = options_.identity,
          .revision = options_.mirror.revision(),
          .epoch = options_.mirror.epoch()};
}

absl::Status EtcdFollower::health() const {
  const MutexLock lock(mutex_);
  return health_;
}

void EtcdFollower::Run() {
  Backoff pauses(kPauses, std::random_device()());
  for (absl::Duration pause; !Pause(pause); pause = pauses.Next()) {
    const int64_t start = options_.mirror.revision();
    absl::Status status = FollowOnce();
    if (absl::IsOutOfRange(status) || absl::IsDataLoss(status)) {
      LogWarning("etcd_read_again", {{"reason", status.message()}});
      status = Load();
    }
    SetHealth(status);
    if (options_.mirror.revision() > start) pauses.Reset();
  }
}

absl::Status EtcdFollower::FollowOnce() {
  RETURN_IF_ERROR(
      IdentifyEtcdCluster(options_.client, options_.keys, cluster(), options_.timeout).status());
  SetHealth(absl::OkStatus());
  etcdserverpb::WatchCreateRequest request;
  request.set_key(options_.keys.root());
  request.set_range_end(EtcdPrefixEnd(options_.keys.root()));
  request.set_start_revision(options_.mirror.ResumeAt());
  request.set_fragment(true);

  Watched watched;
  const auto on_response = [&](const etcdserverpb::WatchResponse& response) {
    const MutexLock lock(watched.mutex);
    if (!watched.unreadable.ok()) return;
    watched.unreadable = options_.mirror.Apply(response);
    watched.has_ended.SignalAll();
  };
  const auto on_end = [&](const absl::Status& status) {
    const MutexLock lock(watched.mutex);
    watched.end = status;
    watched.has_ended.SignalAll();
  };
  const std::function<void()> cancel =
      options_.client.Watch(std::move(request), {.on_response = on_response, .on_end = on_end});
  const MutexLock lock(watched.mutex);
  while (!watched.end.has_value() && watched.unreadable.ok()) {
    watched.has_ended.Wait(watched.mutex);
  }
  cancel();
  while (!watched.end.has_value()) watched.has_ended.Wait(watched.mutex);
  return watched.unreadable.ok() ? *watched.end : watched.unreadable;
}

absl::Status EtcdFollower::Load() {
  for (;;) {
    absl::StatusOr<EtcdSnapshot> snapshot =
        ReadEtcdSnapshot(options_.client, options_.keys, options_.timeout);
    if (absl::IsOutOfRange(snapshot.status())) continue;  // compacted while it was read
    RETURN_IF_ERROR(snapshot.status());
    return options_.mirror.Load(std::move(snapshot->pairs), snapshot->revision);
  }
}

bool EtcdFollower::Pause(absl::Duration pause) {
  const RealClock clock;
  const absl::Duration end = clock.Monotonic() + pause;
  const MutexLock lock(mutex_);
  for (absl::Duration left = pause; !stopping_ && left > absl::ZeroDuration();
       left = end - clock.Monotonic()) {
    is_stopping_.WaitFor(mutex_, left);
  }
  return stopping_;
}

void EtcdFollower::SetHealth(const absl::Status& health) {
  // An etcd that is away says nothing about whose it is.
  if (!health.ok() && !absl::IsFailedPrecondition(health)) return;
  {
    const MutexLock lock(mutex_);
    if (health == health_) return;
    health_ = health;
  }
  if (!health.ok()) LogError("etcd_refused", {{"reason", health.message()}});
}

}  // namespace crossmesh
