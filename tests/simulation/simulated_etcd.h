#pragma once

#include "controller/store/etcd/records/etcd_keys.h"
#include "controller/store/etcd/records/testing/etcd_model.h"
#include "etcd/rpc.pb.h"
#include "tests/simulation/simulated_history.h"
#include "tests/simulation/simulated_network.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// As much of etcd as controllers use, on a node of its own. What it has outlives its process.
class SimulatedEtcd {
 public:
  SimulatedEtcd(SimulatedNode& node, SimulatedHistory& history);

  static const EtcdKeys& Keys();
  static const std::string& Identity();

  SimulatedNode& node() { return node_; }
  // Leases end from now on.
  void Start();
  // All revisions but the newest are forgotten.
  void Compact() { compacted_ = model_.revision(); }

  // Called, once, when the next commit of a controller has been taken.
  void OnNextCommit(std::function<void()> on_commit) { on_commit_ = std::move(on_commit); }

  // In its process.
  etcdserverpb::TxnResponse Txn(const etcdserverpb::TxnRequest& request);
  // The same, of a commit of a controller of this epoch.
  etcdserverpb::TxnResponse Commit(const etcdserverpb::TxnRequest& request, uint64_t epoch);
  int64_t Grant(absl::Duration time);
  // False: it has ended.
  bool Renew(int64_t lease);
  void Revoke(int64_t lease);
  struct Snapshot {
    std::vector<etcdserverpb::KeyValue> pairs;
    int64_t revision = 0;
  };
  Snapshot Read() const { return {model_.Pairs(), model_.revision()}; }
  // `on_response` is called at the other end of the stream, until that ends.
  using OnResponse = std::function<void(const etcdserverpb::WatchResponse&)>;
  void Watch(const std::shared_ptr<SimulatedStream>& stream, int64_t from, OnResponse on_response);

 private:
  struct Lease {
    absl::Duration time;
    absl::Duration end;  // by the node's clock
    std::string key;     // that goes with it
  };
  struct Watcher {
    std::shared_ptr<SimulatedStream> stream;
    int64_t next = 0;  // revision
    OnResponse on_response;
  };

  void ExpireLeases();
  void Delete(const std::string& key);
  void TellWatchers();

  SimulatedNode& node_;
  SimulatedHistory& history_;
  std::function<void()> on_commit_;
  EtcdModel model_;
  int64_t compacted_ = 0;
  std::map<int64_t, Lease> leases_;
  int64_t granted_ = 0;
  std::map<uint64_t, Watcher> watchers_;  // by the numbers of their streams
};

// Calls of one process to etcd, each answered, or Unavailable after its time.
class SimulatedEtcdCalls {
 public:
  SimulatedEtcdCalls(SimulatedNode& node, SimulatedNetwork& network, SimulatedEtcd& etcd)
      : node_(node), network_(network), etcd_(etcd) {}

  // `ask` runs at etcd, `done` here. `label` is a constant.
  template <typename Answer>
  void Call(const char* label, absl::Duration timeout, std::function<Answer(SimulatedEtcd&)> ask,
            std::function<void(absl::StatusOr<Answer>)> done) {
    const auto stream = OpenStream();
    const auto finish =
        std::make_shared<std::function<void(absl::StatusOr<Answer>)>>(std::move(done));
    const auto end = [finish, stream](absl::StatusOr<Answer> answer) {
      const auto once = std::exchange(*finish, nullptr);
      stream->End(0, absl::CancelledError("it is over"));
      if (once != nullptr) once(std::move(answer));
    };
    stream->Send(0, label, [&etcd = etcd_, stream, ask = std::move(ask), end] {
      const auto answer = std::make_shared<Answer>(ask(etcd));
      stream->Send(1, "hears from etcd", [end, answer] { end(*answer); });
    });
    stream->Hear(0, end);
    node_.After(timeout, [end] { end(absl::UnavailableError("etcd did not answer in time")); });
  }

  // Until the stream's side 0 is ended, or it breaks.
  std::shared_ptr<SimulatedStream> Watch(int64_t from, SimulatedEtcd::OnResponse on_response,
                                         std::function<void(const absl::Status&)> on_end);

 private:
  std::shared_ptr<SimulatedStream> OpenStream();

  SimulatedNode& node_;
  SimulatedNetwork& network_;
  SimulatedEtcd& etcd_;
};

}  // namespace crossmesh
