#pragma once

#include "etcd/rpc.pb.h"

#include <cstdint>
#include <string>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The plainest etcd: one that keeps everything, in this process, and does what EtcdCommit asks of
// it, within etcd's limits. Thread-compatible.
class EtcdModel {
 public:
  // A request that etcd would refuse as such ends the process.
  etcdserverpb::TxnResponse Txn(const etcdserverpb::TxnRequest& request);
  // Puts one key, at a revision of its own.
  void Put(const std::string& key, const std::string& value);

  int64_t revision() const { return revision_; }
  // What there is now, by key.
  std::vector<etcdserverpb::KeyValue> Pairs() const;
  // All events of revisions from this one on, in order.
  std::vector<etcdserverpb::Event> EventsFrom(int64_t revision) const;

 private:
  bool Holds(const etcdserverpb::Compare& compare) const;
  etcdserverpb::ResponseOp Do(const etcdserverpb::RequestOp& operation);
  void DoPut(const etcdserverpb::PutRequest& put);
  void DoDeletion(const etcdserverpb::DeleteRangeRequest& deletion);

  absl::btree_map<std::string, etcdserverpb::KeyValue> pairs_;
  std::vector<etcdserverpb::Event> events_;
  int64_t revision_ = 1;  // as that of an empty etcd
};

}  // namespace crossmesh
