#pragma once

#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "controller/store/etcd/etcd_cluster.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <absl/base/thread_annotations.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// What the etcd of a cluster was when this machine saw it last, in a file. Controllers that are all
// started again know nothing else that an etcd which was set back to a backup has not. The file is
// a second behind at most. Thread-safe.
class ClusterWatermark {
 public:
  static constexpr absl::Duration kInterval = absl::Seconds(1);

  // Reads the file, which need not exist. DataLoss, naming it and what to do: it is none; the
  // system's error: it cannot be read or written.
  static absl::StatusOr<std::unique_ptr<ClusterWatermark>> Open(std::string path);
  // Writes what has come since.
  ~ClusterWatermark();

  const std::string& path() const { return path_; }
  // As the file had it when it was opened.
  const std::optional<EtcdCluster>& known() const { return known_; }

  // From now on the file is kept up to what `cluster` says, which must not block. Once.
  void Follow(std::function<EtcdCluster()> cluster);

 private:
  ClusterWatermark(std::string path, std::optional<EtcdCluster> known)
      : path_(std::move(path)), known_(known), written_(std::move(known)) {}
  void Run();
  void WriteIfNewer();

  const std::string path_;
  const std::optional<EtcdCluster> known_;
  std::function<EtcdCluster()> cluster_;
  std::optional<EtcdCluster> written_;  // of the thread, once there is one

  Mutex mutex_;
  CondVar stopping_changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;  // last: it uses the others
};

}  // namespace crossmesh
