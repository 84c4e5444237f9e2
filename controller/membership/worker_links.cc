// Links between workers that have failed, as the registry knows them.

#include "controller/membership/failed_links.h"
#include "controller/membership/worker_registry.h"

#include <set>
#include <string>

namespace crossmesh {
namespace {

std::set<std::string> HostsOf(const WorkerRecord& worker) {
  std::set<std::string> hosts;
  for (const DeviceId& device : worker.devices) hosts.insert(device.host);
  return hosts;
}

}  // namespace

const WorkerRecord* WorkerRegistry::FindLiveRecord(absl::string_view worker) const {
  const auto found = workers_.find(worker);
  if (found == workers_.end() || found->second.record.state == WorkerState::kLost) return nullptr;
  return &found->second.record;
}

void WorkerRegistry::LinkFailed(absl::string_view worker, absl::string_view peer,
                                absl::string_view reason) {
  const MutexLock lock(mutex_);
  // What is gone is no matter of a link.
  if (FindLiveRecord(worker) == nullptr || FindLiveRecord(peer) == nullptr) return;
  links_->Fail(worker, peer, reason, clock_.Monotonic());
}

void WorkerRegistry::LinksWorked(absl::string_view worker, std::span<const std::string> peers) {
  const MutexLock lock(mutex_);
  for (const std::string& peer : peers) links_->Work(worker, peer);
}

WorkerRegistry::HostLinks WorkerRegistry::FailedHostLinks() const {
  const MutexLock lock(mutex_);
  HostLinks links;
  for (const FailedLinks::Failure& failure : links_->Now(clock_.Monotonic())) {
    const WorkerRecord* const worker = FindLiveRecord(failure.worker);
    const WorkerRecord* const peer = FindLiveRecord(failure.peer);
    if (worker == nullptr || peer == nullptr) continue;
    for (const std::string& a : HostsOf(*worker)) {
      for (const std::string& b : HostsOf(*peer)) {
        if (a != b) links.insert({{a, b}, {b, a}});
      }
    }
  }
  return links;
}

void WorkerRegistry::DescribeLinks(WorkerRecord& record) const {
  const absl::Duration now = clock_.Monotonic();
  for (const FailedLinks::Failure& failure : links_->Now(now)) {
    if (failure.worker != record.name && failure.peer != record.name) continue;
    const std::string& peer = failure.worker == record.name ? failure.peer : failure.worker;
    record.failed_links.push_back(
        {.peer = peer, .reason = failure.reason, .time = clock_.Now() - (now - failure.since)});
  }
}

}  // namespace crossmesh
