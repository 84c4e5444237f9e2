#pragma once

#include "common/base/event_fd.h"
#include "controller/leadership/etcd/leader_election.h"
#include "controller/store/etcd/etcd_store.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

class ClusterWatermark;

// A controller among several, as far as metadata and leadership go: a store in etcd, and an
// election whose terms are the store's. It serves from has_begun to has_ended, and then ends its
// process: what it did for its term goes with that, and another process takes part anew.
// Thread-safe.
class EtcdCandidate {
 public:
  struct Options {
    EtcdStore::Options store;
    std::string address;  // that others are told, without a space
    absl::Duration lease_time = absl::Seconds(5);
    // The file of a ClusterWatermark, which outlives all controllers; empty: none, and an etcd that
    // was set back while none ran is taken as it is.
    std::string watermark;
  };
  // Where things stand.
  struct Standing {
    std::optional<uint64_t> epoch;      // of the first term, once it has begun
    std::optional<std::string> leader;  // the address of another one that leads
    absl::Status why;                   // why it does not lead; OK while it does, or `leader`
  };

  // Reads all metadata, and takes part. Blocks. Errors as EtcdStore::Open and
  // LeaderElection::Start, and as ClusterWatermark::Open.
  static absl::StatusOr<std::unique_ptr<EtcdCandidate>> Start(const Options& options);
  // As if the process ended: others wait for the end of the lease.
  ~EtcdCandidate();

  // Readable once the first term has begun, and all that was written before can be read; or once it
  // could not begin: then there is no epoch, and it has ended.
  const EventFd& has_begun() const;
  // Readable once it has ended.
  const EventFd& has_ended() const;
  Standing standing() const;

  // Writes in the term only.
  const std::shared_ptr<EtcdStore>& store() const { return store_; }
  // Has it end for this reason, e.g. since the store is of no use any more.
  void End(const absl::Status& why);
  // As LeaderElection::leads.
  bool leads() const { return election_->leads(); }
  // As LeaderElection::Resign.
  void Resign(absl::Duration wait) { election_->Resign(wait); }

 private:
  class News;
  EtcdCandidate(std::shared_ptr<EtcdStore> store, std::shared_ptr<News> news);

  const std::shared_ptr<EtcdStore> store_;
  const std::shared_ptr<News> news_;  // of what the store calls back too, which may outlive this
  std::unique_ptr<LeaderElection> election_;
  std::unique_ptr<ClusterWatermark> watermark_;
};

}  // namespace crossmesh
