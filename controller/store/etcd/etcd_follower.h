#pragma once

#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "controller/store/etcd/etcd_client.h"
#include "controller/store/etcd/etcd_cluster.h"
#include "controller/store/etcd/records/etcd_keys.h"
#include "controller/store/etcd/records/etcd_mirror.h"

#include <optional>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// Keeps a mirror as etcd is: by a watch, which it opens again whenever that breaks, and by reading
// everything when what the watch would have to begin with is compacted. Thread-safe.
class EtcdFollower {
 public:
  struct Options {
    EtcdClient& client;  // and what follows outlive it
    const EtcdKeys& keys;
    EtcdMirror& mirror;
    std::string identity;    // of the cluster
    absl::Duration timeout;  // of a call
  };

  explicit EtcdFollower(Options options) : options_(std::move(options)) {}
  ~EtcdFollower() { Stop(); }

  // Reads everything, and follows from there on by a thread of its own. Once. Blocks. Errors as
  // ReadEtcdSnapshot and EtcdMirror::Load; then nothing is followed.
  absl::Status Start();
  // After the client. Repeatable. Blocks.
  void Stop();

  // What is known of the cluster now.
  EtcdCluster cluster() const;
  // FailedPrecondition since etcd was found not to be that of the cluster, or set back.
  absl::Status health() const;

 private:
  // What a watch has come to.
  struct Watched {
    Mutex mutex;
    CondVar has_ended;
    absl::Status unreadable ABSL_GUARDED_BY(mutex);
    std::optional<absl::Status> end ABSL_GUARDED_BY(mutex);
  };

  void Run();
  absl::Status FollowOnce();
  absl::Status Load();
  // Whether it is stopping.
  bool Pause(absl::Duration pause);
  void SetHealth(const absl::Status& health);

  const Options options_;
  mutable Mutex mutex_;
  CondVar is_stopping_;
  absl::Status health_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace crossmesh
