#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Where the metadata of one cluster lies in etcd: all below /crossmesh/CLUSTER/. Immutable.
class EtcdKeys {
 public:
  // `cluster` has passed Check.
  explicit EtcdKeys(absl::string_view cluster);
  // InvalidArgument: a cluster's name is 1 to 63 letters, digits, '-', '_' and '.'.
  static absl::Status Check(absl::string_view cluster);

  const std::string& root() const { return root_; }
  // Made at random by the first controller: tells this cluster from all others.
  std::string identity() const { return root_ + "identity"; }
  // Of the controller that leads, with its lease.
  std::string leader() const { return root_ + "leader"; }
  // The highest ever, as EpochText.
  std::string epoch() const { return root_ + "epoch"; }
  // Put by every commit, last: a v1::EtcdCommitRecord.
  std::string commit() const { return root_ + "commit"; }
  // Each object: a v1::EtcdObjectRecord.
  std::string objects() const { return root_ + "object/"; }
  std::string Object(absl::string_view key) const;
  // Pieces of objects that are large, by id and index.
  std::string chunks() const { return root_ + "chunk/"; }
  std::string ChunksOf(absl::string_view id) const;
  std::string Chunk(absl::string_view id, int64_t index) const;

 private:
  std::string root_;
};

// The keys that start with `prefix` are those from it on, below this one. `prefix` ends with no
// byte 0xff.
std::string EtcdPrefixEnd(absl::string_view prefix);

// 20 digits, which sort as the numbers do: etcd compares values as bytes.
std::string EpochText(uint64_t epoch);
std::optional<uint64_t> ParseEpochText(absl::string_view text);

}  // namespace crossmesh
