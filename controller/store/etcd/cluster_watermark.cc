#include "controller/store/etcd/cluster_watermark.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/synced_file.h"

#include <cerrno>
#include <fstream>
#include <sstream>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <unistd.h>

namespace crossmesh {
namespace {

// Identity, revision, epoch: a line of three words.
std::string LineOf(const EtcdCluster& cluster) {
  return absl::StrCat(cluster.identity, " ", cluster.revision, " ", cluster.epoch, "\n");
}

std::optional<EtcdCluster> ParseLine(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, absl::ByAnyChar(" \n"));
  EtcdCluster cluster;
  if (words.size() != 4 || words[0].empty() || !absl::SimpleAtoi(words[1], &cluster.revision) ||
      !absl::SimpleAtoi(words[2], &cluster.epoch)) {
    return std::nullopt;
  }
  cluster.identity = words[0];
  if (LineOf(cluster) != text) return std::nullopt;
  return cluster;
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClusterWatermark>> ClusterWatermark::Open(std::string path) {
  std::optional<EtcdCluster> known;
  if (access(path.c_str(), F_OK) == 0) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    if (!file) return absl::ErrnoToStatus(errno, absl::StrCat("read ", path));
    known = ParseLine(text.str());
    if (!known.has_value()) {
      return absl::DataLossError(absl::StrCat(
          path, ": expected a line with an identity, a revision and an epoch, found ",
          text.str().size(), " bytes of something else; remove it to accept etcd as it is"));
    }
    // That it can be written is known before it is needed.
    RETURN_IF_ERROR(ReplaceSynced(path, LineOf(*known)));
  } else if (const std::string folder = FolderOf(path); access(folder.c_str(), W_OK) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("write into ", folder));
  }
  return std::unique_ptr<ClusterWatermark>(new ClusterWatermark(std::move(path), std::move(known)));
}

ClusterWatermark::~ClusterWatermark() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    stopping_changed_.SignalAll();
  }
  thread_.Join();
}

void ClusterWatermark::Follow(std::function<EtcdCluster()> cluster) {
  cluster_ = std::move(cluster);
  thread_ = Thread("watermark", [this] { Run(); });
}

void ClusterWatermark::Run() {
  while (true) {
    WriteIfNewer();
    const MutexLock lock(mutex_);
    if (stopping_) return;
    stopping_changed_.WaitFor(mutex_, kInterval);
  }
}

void ClusterWatermark::WriteIfNewer() {
  const EtcdCluster now = cluster_();
  if (written_ == now) return;
  const absl::Status status = ReplaceSynced(path_, LineOf(now));
  if (status.ok()) {
    written_ = now;
  } else {
    LogWarning("etcd_watermark_not_written", {{"file", path_}, {"reason", status.message()}});
  }
}

}  // namespace crossmesh
