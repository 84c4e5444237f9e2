#pragma once

#include "controller/store/etcd/records/etcd_keys.h"
#include "controller/store/etcd/records/etcd_mirror.h"
#include "controller/store/metadata_store.h"
#include "etcd/rpc.pb.h"

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// A commit as requests to etcd. All are done only while the fence holds: the leader's key is still
// the one that was made at `fence`, and no epoch higher than the transaction's was ever stored. The
// last one is done only right after the commit that the mirror saw last: so what was sent before
// and is late, for whatever reason, is never done after it. Immutable.
class EtcdCommit {
 public:
  // Of a request, as etcd is by default.
  static constexpr int64_t kRequestBytesMax = int64_t{3} << 19;
  // What a commit writes beyond so much lies in chunks of this size.
  static constexpr int64_t kChunkBytes = int64_t{1} << 20;

  struct Context {
    const EtcdKeys& keys;
    const EtcdMirror& mirror;  // as of which it is done
    int64_t fence = 0;         // revision at which the leader's key was made
    std::string chunk_id;      // that nothing else ever has
  };
  // InvalidArgument: more bytes than etcd takes at once, large objects aside.
  static absl::StatusOr<EtcdCommit> Create(const StoreTransaction& transaction,
                                           const Context& context);

  // One after the other, before the last: the chunks of large objects.
  const std::vector<etcdserverpb::TxnRequest>& chunks() const { return chunks_; }
  const etcdserverpb::TxnRequest& last() const { return last_; }
  // What etcd counts of the last: it refuses more than its --max-txn-ops.
  int operations() const;

 private:
  class Builder;
  EtcdCommit() = default;

  std::vector<etcdserverpb::TxnRequest> chunks_;
  etcdserverpb::TxnRequest last_;
};

// Why one of a commit's requests was not done.
struct EtcdRefusal {
  // Aborted: fenced, or a requirement does not hold, as a MetadataStore says it. OK: neither, but
  // other commits came before.
  absl::Status status;
  int64_t newest_commit = 0;  // the revision of the last of these
};
EtcdRefusal WhyRefused(const StoreTransaction& transaction, const EtcdCommit::Context& context,
                       const etcdserverpb::TxnResponse& response);

// Deletes the chunks with these ids, while the fence holds.
etcdserverpb::TxnRequest DeletionOfChunks(const std::vector<std::string>& ids,
                                          const EtcdCommit::Context& context, uint64_t epoch);

}  // namespace crossmesh
