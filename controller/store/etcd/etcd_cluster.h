#pragma once

#include "controller/store/etcd/etcd_client.h"
#include "controller/store/etcd/records/etcd_keys.h"
#include "etcd/rpc.pb.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// What tells the etcd of a cluster from that of another one, and from its own past.
struct EtcdCluster {
  std::string identity;
  int64_t revision = 0;  // of etcd
  uint64_t epoch = 0;

  friend bool operator==(const EtcdCluster&, const EtcdCluster&) = default;
};

// Says what is there. Where there is no cluster yet it makes one, with an identity at random,
// unless one is `known`. Errors: as EtcdClient; DataLoss: the epoch cannot be read;
// FailedPrecondition, with what to do: it is not what was known, or has been set back behind it.
absl::StatusOr<EtcdCluster> IdentifyEtcdCluster(EtcdClient& client, const EtcdKeys& keys,
                                                const std::optional<EtcdCluster>& known,
                                                absl::Duration timeout);

// FailedPrecondition unless `found` is `known` at a revision and an epoch not before.
absl::Status CheckEtcdCluster(const EtcdKeys& keys, const EtcdCluster& known,
                              const EtcdCluster& found);

// All that lies below the root.
struct EtcdSnapshot {
  std::vector<etcdserverpb::KeyValue> pairs;
  int64_t revision = 0;
};
// Reads it page by page, each within `timeout`. OutOfRange: etcd has compacted it meanwhile.
absl::StatusOr<EtcdSnapshot> ReadEtcdSnapshot(EtcdClient& client, const EtcdKeys& keys,
                                              absl::Duration timeout);

}  // namespace crossmesh
