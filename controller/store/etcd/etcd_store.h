#pragma once

#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "controller/store/etcd/etcd_client.h"
#include "controller/store/etcd/etcd_cluster.h"
#include "controller/store/etcd/etcd_follower.h"
#include "controller/store/etcd/records/etcd_commit.h"
#include "controller/store/etcd/records/etcd_keys.h"
#include "controller/store/etcd/records/etcd_mirror.h"
#include "controller/store/metadata_store.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// Metadata in etcd, for two or more controllers, of which the one that leads writes. All of it is
// in memory too, kept up to date by a watch: reads ask nobody, and go on while etcd is away.
// Revisions are etcd's. A commit takes one call to etcd, one more for each MiB of large objects,
// and commits go one after the other. InvalidArgument: more than etcd takes at once, by its flags
// --max-txn-ops and --max-request-bytes. Thread-safe.
class EtcdStore final : public MetadataStore {
 public:
  struct Options {
    EtcdClient::Options etcd;
    std::string cluster = "default";  // as EtcdKeys::Check
    // What this cluster was when it was seen last; without it, what is found is believed.
    std::optional<EtcdCluster> known;
    // How many commits are kept for those who follow.
    size_t commits_kept = 1000;
    // For etcd to answer, when it is opened and for every call.
    absl::Duration timeout = absl::Seconds(5);
  };

  // Reads everything. Blocks. InvalidArgument: malformed options; Unavailable: no etcd answers;
  // DataLoss: what is there was not written by controllers; FailedPrecondition, with what to do:
  // another cluster's, or one that was set back.
  static absl::StatusOr<std::unique_ptr<EtcdStore>> Open(const Options& options);
  // Commits that wait are not done.
  ~EtcdStore() override;

  // From now on this controller writes, while the leader's key is the one made at revision `fence`.
  // `done`, called as a commit's, says when everything that was written before can be read: OK,
  // Unavailable, or Aborted when the term has ended meanwhile. Until the first term, and after
  // each, commits are Aborted.
  void BeginTerm(int64_t fence, uint64_t epoch, absl::AnyInvocable<void(absl::Status)> done);
  void EndTerm();

  void CommitThen(StoreTransaction transaction, CommitDone done) override;
  absl::StatusOr<StoredObject> Get(absl::string_view key) const override;
  absl::StatusOr<int64_t> RevisionOf(absl::string_view key) const override;
  absl::StatusOr<std::vector<StoredObject>> List(absl::string_view prefix, absl::string_view after,
                                                 int64_t limit) const override;
  int64_t revision() const override;
  absl::StatusOr<std::vector<StoredCommit>> CommitsAfter(int64_t revision, int64_t limit,
                                                         absl::Duration wait) const override;

  // What is known of the cluster now.
  EtcdCluster cluster() const { return follower_.cluster(); }
  // FailedPrecondition while etcd is not that of this cluster, or was set back: nothing is written.
  absl::Status health() const { return follower_.health(); }

 private:
  using Task = absl::AnyInvocable<void()>;

  EtcdStore(const Options& options, std::unique_ptr<EtcdClient> client, std::string identity);

  // On the writer's thread.
  void Write();
  absl::StatusOr<int64_t> CommitNow(const StoreTransaction& transaction);
  // Nothing: other commits came before, and can be read now.
  absl::StatusOr<std::optional<int64_t>> TryCommit(const StoreTransaction& transaction,
                                                   const EtcdCommit::Context& context);
  absl::StatusOr<etcdserverpb::TxnResponse> Send(const etcdserverpb::TxnRequest& request);
  absl::Status AwaitRevision(int64_t revision) const;
  absl::Status CatchUp(int64_t fence, uint64_t epoch, int64_t term);
  absl::StatusOr<EtcdCommit::Context> NewContext();

  const absl::Duration timeout_;
  const EtcdKeys keys_;
  const std::string chunk_ids_;  // what those of this store begin with
  EtcdMirror mirror_;
  const std::unique_ptr<EtcdClient> client_;
  EtcdFollower follower_;
  int64_t chunk_ids_used_ = 0;  // writer's thread only

  mutable Mutex mutex_;
  CondVar has_task_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  int64_t term_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<int64_t> fence_ ABSL_GUARDED_BY(mutex_);  // of the term, once it has caught up
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  Thread writer_;
};

}  // namespace crossmesh
