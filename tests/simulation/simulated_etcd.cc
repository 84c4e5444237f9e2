#include "tests/simulation/simulated_etcd.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace crossmesh {

const EtcdKeys& SimulatedEtcd::Keys() {
  static const auto* const keys = new EtcdKeys("simulated");
  return *keys;
}

const std::string& SimulatedEtcd::Identity() {
  static const auto* const identity = new std::string("identity");
  return *identity;
}

SimulatedEtcd::SimulatedEtcd(SimulatedNode& node, SimulatedHistory& history)
    : node_(node), history_(history) {
  model_.Put(Keys().identity(), Identity());
}

void SimulatedEtcd::Start() {
  node_.Start();
  watchers_.clear();
  ExpireLeases();
}

void SimulatedEtcd::ExpireLeases() {
  std::vector<int64_t> over;
  for (const auto& [id, lease] : leases_) {
    if (lease.end <= node_.clock().Monotonic()) over.push_back(id);
  }
  for (const int64_t id : over) Revoke(id);
  node_.After(absl::Milliseconds(500), [this] { ExpireLeases(); });
}

etcdserverpb::TxnResponse SimulatedEtcd::Txn(const etcdserverpb::TxnRequest& request) {
  etcdserverpb::TxnResponse response = model_.Txn(request);
  if (!response.succeeded()) return response;
  for (const etcdserverpb::RequestOp& operation : request.success()) {
    if (!operation.has_request_put()) continue;
    const etcdserverpb::PutRequest& put = operation.request_put();
    if (put.lease() != 0) leases_[put.lease()].key = put.key();
    const auto epoch = ParseEpochText(put.value());
    if (put.key().ends_with("/epoch") && epoch.has_value()) history_.OnCommitted(*epoch);
  }
  TellWatchers();
  return response;
}

etcdserverpb::TxnResponse SimulatedEtcd::Commit(const etcdserverpb::TxnRequest& request,
                                                uint64_t epoch) {
  const etcdserverpb::TxnResponse response = Txn(request);
  if (!response.succeeded()) return response;
  history_.OnCommitted(epoch);
  const auto on_commit = std::exchange(on_commit_, nullptr);
  if (on_commit != nullptr) on_commit();
  return response;
}

int64_t SimulatedEtcd::Grant(absl::Duration time) {
  leases_[++granted_] = {.time = time, .end = node_.clock().Monotonic() + time};
  return granted_;
}

bool SimulatedEtcd::Renew(int64_t lease) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return false;
  found->second.end = node_.clock().Monotonic() + found->second.time;
  return true;
}

void SimulatedEtcd::Revoke(int64_t lease) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return;
  const std::string key = found->second.key;
  leases_.erase(found);
  if (!key.empty()) Delete(key);
}

void SimulatedEtcd::Delete(const std::string& key) {
  etcdserverpb::TxnRequest request;
  request.add_success()->mutable_request_delete_range()->set_key(key);
  model_.Txn(request);
  TellWatchers();
}

void SimulatedEtcd::Watch(const std::shared_ptr<SimulatedStream>& stream, int64_t from,
                          OnResponse on_response) {
  if (from <= compacted_) return stream->End(1, absl::OutOfRangeError("compacted"));
  watchers_[stream->number()] = {stream, from, std::move(on_response)};
  stream->Hear(1, [this, number = stream->number()](const absl::Status& /*status*/) {
    watchers_.erase(number);
  });
  TellWatchers();
}

void SimulatedEtcd::TellWatchers() {
  for (auto& [number, watcher] : watchers_) {
    const std::vector<etcdserverpb::Event> events = model_.EventsFrom(watcher.next);
    if (events.empty()) continue;
    watcher.next = model_.revision() + 1;
    // In two parts, within a revision as well.
    for (const bool is_second : {false, true}) {
      etcdserverpb::WatchResponse response;
      const size_t half = events.size() / 2;
      for (size_t i = is_second ? half : 0; i < (is_second ? events.size() : half); ++i) {
        *response.add_events() = events[i];
      }
      if (response.events().empty()) continue;
      response.set_fragment(!is_second);
      response.mutable_header()->set_revision(model_.revision());
      watcher.stream->Send(
          1, "hears of a change in etcd",
          [on_response = watcher.on_response, response] { on_response(response); });
    }
  }
}

std::shared_ptr<SimulatedStream> SimulatedEtcdCalls::OpenStream() {
  return network_.Open(node_, etcd_.node(),
                       [](const std::shared_ptr<SimulatedStream>& /*stream*/) {});
}

std::shared_ptr<SimulatedStream> SimulatedEtcdCalls::Watch(
    int64_t from, SimulatedEtcd::OnResponse on_response,
    std::function<void(const absl::Status&)> on_end) {
  const auto stream = OpenStream();
  stream->Hear(0, std::move(on_end));
  stream->Send(0, "is asked for a watch",
               [&etcd = etcd_, stream, from, on_response = std::move(on_response)] {
                 etcd.Watch(stream, from, on_response);
               });
  return stream;
}

}  // namespace crossmesh
