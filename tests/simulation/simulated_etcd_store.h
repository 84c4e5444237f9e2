#pragma once

#include "controller/store/etcd/records/etcd_commit.h"
#include "controller/store/etcd/records/etcd_keys.h"
#include "controller/store/etcd/records/etcd_mirror.h"
#include "controller/store/metadata_store.h"
#include "tests/simulation/simulated_etcd.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// What EtcdStore and EtcdFollower do with their threads, by steps: the same calls in the same order
// around the real EtcdCommit and EtcdMirror.
class SimulatedEtcdStore final : public MetadataStore {
 public:
  SimulatedEtcdStore(SimulatedNode& node, SimulatedEtcdCalls& calls);
  ~SimulatedEtcdStore() override;

  // Reads everything, and follows from there on. `done` is called once that is so.
  void Open(std::function<void()> done);
  // As EtcdStore.
  void BeginTerm(int64_t fence, std::function<void(absl::Status)> done);
  void EndTerm();

  void CommitThen(StoreTransaction transaction, CommitDone done) override;
  absl::StatusOr<StoredObject> Get(absl::string_view key) const override {
    return mirror_.table().Get(key);
  }
  absl::StatusOr<int64_t> RevisionOf(absl::string_view key) const override {
    return mirror_.table().RevisionOf(key);
  }
  absl::StatusOr<std::vector<StoredObject>> List(absl::string_view prefix, absl::string_view after,
                                                 int64_t limit) const override {
    return mirror_.table().List(prefix, after, limit);
  }
  int64_t revision() const override { return mirror_.table().revision(); }
  absl::StatusOr<std::vector<StoredCommit>> CommitsAfter(int64_t revision, int64_t limit,
                                                         absl::Duration wait) const override {
    return mirror_.table().CommitsAfter(revision, limit, wait);
  }

 private:
  struct Pending {
    StoreTransaction transaction;
    CommitDone done;
    int attempts = 0;
  };

  void Load(std::function<void()> then);
  void Follow();
  void OnWatchEnd(const absl::Status& status);
  void Await(int64_t revision, std::function<void(absl::Status)> done);
  void TellWaiting();
  void CommitNext();
  void TryCommit();
  void OnAnswer(const EtcdCommit::Context& context,
                const absl::StatusOr<etcdserverpb::TxnResponse>& response);
  void Finish(absl::StatusOr<int64_t> result);
  // What runs only while this is there.
  template <typename Action>
  auto IfThere(Action action) const {
    return [action = std::move(action),
            is_there = std::weak_ptr<const bool>(is_there_)](const auto&... arguments) {
      if (!is_there.expired()) action(arguments...);
    };
  }

  SimulatedNode& node_;
  SimulatedEtcdCalls& calls_;
  const EtcdKeys& keys_ = SimulatedEtcd::Keys();
  EtcdMirror mirror_;
  std::shared_ptr<SimulatedStream> watch_;
  std::optional<int64_t> fence_;
  int64_t term_ = 0;
  int64_t chunk_ids_used_ = 0;
  std::deque<std::shared_ptr<Pending>> commits_;  // the first is on its way
  struct Waiting {
    int64_t revision = 0;
    std::function<void(absl::Status)> done;
  };
  std::map<uint64_t, Waiting> waiting_;
  uint64_t waits_ = 0;
  const std::shared_ptr<const bool> is_there_ = std::make_shared<const bool>(true);
};

}  // namespace crossmesh
