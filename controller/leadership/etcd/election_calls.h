#pragma once

#include "controller/leadership/election_machine.h"
#include "controller/store/etcd/records/etcd_keys.h"
#include "etcd/rpc.pb.h"

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The value of the leader's key: address and incarnation, neither with a space.
std::string LeaderValue(const LeaderEntry& leader);
// What another program has written there is an address with an incarnation that nobody has.
LeaderEntry ParseLeader(const etcdserverpb::KeyValue& pair);

// Reads leader and epoch, of the cluster with this identity.
etcdserverpb::TxnRequest ReadElectionRequest(const EtcdKeys& keys, const std::string& identity);
// FailedPrecondition: etcd is that of another cluster.
absl::StatusOr<ElectionReading> ReadingOf(const EtcdKeys& keys,
                                          const etcdserverpb::TxnResponse& response);

// Makes `leader` the leader, in the cluster with this identity, if there is none and no epoch was
// stored since. Its response is that it succeeded or not.
struct CampaignCall {
  const EtcdKeys& keys;
  const std::string& identity;
  LeaderEntry leader;
  uint64_t epoch = 0;
  int64_t epoch_revision = 0;
};
etcdserverpb::TxnRequest CampaignRequest(const CampaignCall& call);

}  // namespace crossmesh
