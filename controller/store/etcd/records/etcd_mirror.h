#pragma once

#include "common/base/mutex.h"
#include "controller/store/etcd/records/etcd_keys.h"
#include "controller/store/object_table.h"
#include "crossmesh/v1/etcd_record.pb.h"
#include "etcd/rpc.pb.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// The metadata of a cluster in memory, as etcd has it: all of it at one revision, then event by
// event. A commit shows when its last event has come, which is that of the key EtcdKeys::commit: so
// it shows whole, and a large object with all its chunks, which came before. Thread-safe.
class EtcdMirror {
 public:
  EtcdMirror(EtcdKeys keys, size_t commits_kept);

  // Everything below the root, at `revision`. DataLoss names the key whose value is not as a
  // controller writes it; then nothing has changed.
  absl::Status Load(std::vector<etcdserverpb::KeyValue> pairs, int64_t revision);

  // Where to watch from. What came of a revision whose events have not all come is dropped: it
  // comes again.
  int64_t ResumeAt();
  // What the watch says. DataLoss names the key: it is not as a controller writes it, or was
  // written by something else; then all has to be loaded again.
  absl::Status Apply(const etcdserverpb::WatchResponse& response);

  const ObjectTable& table() const { return table_; }
  // The highest that was seen.
  uint64_t epoch() const;
  // Up to which all is known, of whatever key.
  int64_t revision() const;
  // Waits until it is this one or a later one. False: not after `wait`.
  bool AwaitRevision(int64_t revision, absl::Duration wait) const;
  // Of the chunks in which an object lies; nothing when it lies in none.
  std::optional<std::string> ChunksOf(absl::string_view key) const;
  // The ids of chunks of which no object is made, or not yet.
  std::vector<std::string> LooseChunks() const;

 private:
  using Chunks = absl::btree_map<std::string, std::string>;  // by their keys
  using ChunkIds = absl::btree_map<std::string, std::string>;

  // What an object's key holds now; nothing: it is deleted.
  using Pending = absl::btree_map<std::string, std::optional<v1::EtcdObjectRecord>>;

  absl::Status ApplyEvent(const etcdserverpb::Event& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ApplyObject(const etcdserverpb::Event& event, absl::string_view key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ApplyCommit(const etcdserverpb::Event& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The write of an object, out of what is pending.
  absl::StatusOr<StoreTransaction::Write> Take(const v1::EtcdCommitRecord::Write& write)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // An object's bytes, out of `chunks` where it lies in them: they are taken out.
  absl::StatusOr<std::string> ValueOf(v1::EtcdObjectRecord& object, absl::string_view key,
                                      Chunks& chunks) const;

  const EtcdKeys keys_;
  ObjectTable table_;

  mutable Mutex mutex_;
  mutable CondVar has_changed_;
  Chunks chunks_ ABSL_GUARDED_BY(mutex_);          // of which no object is made
  ChunkIds chunk_ids_ ABSL_GUARDED_BY(mutex_);     // by the key of the object that is made of them
  Pending pending_ ABSL_GUARDED_BY(mutex_);        // of revision_, whose commit has not come
  int64_t revision_ ABSL_GUARDED_BY(mutex_) = 0;   // of the event that came last
  int64_t resume_at_ ABSL_GUARDED_BY(mutex_) = 1;  // all before is known
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace crossmesh
