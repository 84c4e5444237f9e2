#pragma once

#include "worker/executor/prepared_part.h"
#include "worker/executor/task.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>

namespace crossmesh {

// One chunk of one node.
struct NodeChunk {
  int32_t node = 0;   // index into PreparedPart::nodes
  int32_t chunk = 0;  // of the node
};

// What a task has of every relay: chunks, leaf hashes, outcome; and the outcome of every
// destination device. Memory moves elsewhere, the progress only knows. Confined to the loop.
//
// A node that receives is settled once: complete (all chunks in place and the checksums agree) or
// failed. A device is complete when all items that it expects are: its nodes, its copies and the
// openings of the channels that end at it. The first failure of any of them is the device's.
class RelayProgress {
 public:
  // Told of a node when one of its chunks is there, or its checksum, or it has failed.
  using OnNode = absl::AnyInvocable<void(int32_t node)>;

  // The part must outlive the progress.
  RelayProgress(const PreparedPart& part, bool checksums, OnNode on_node);

  // As if nothing had come yet, and no source were awaited.
  void Rewind();

  // Sending side.
  // The source tiles of a device cannot be read yet; before Begin.
  void AwaitSource(DeviceRank device);
  void OnSourceReady(DeviceRank device);
  bool is_source_ready(DeviceRank device) const { return !awaited_sources_.contains(device); }
  // Is the chunk there, with those that must have come after it, as `lag` says? For a root: is its
  // source ready?
  bool CanSend(NodeChunk at, int32_t lag) const;
  // For roots with checksums on, once per chunk: where to put its leaf hashes.
  bool WantsRootHash(NodeChunk at) const;
  void OnRootHashed(NodeChunk at);
  // The checksum of the relay's root, as far as it is known here.
  std::optional<uint64_t> RootChecksum(int32_t node);

  // Receiving side.
  // False when the chunk or end came before, or is not wanted any more.
  bool TakeChunk(NodeChunk at);
  bool TakeEnd(int32_t node);
  // Its bytes are in place, and with checksums on its leaf hashes are stored.
  void OnChunkInPlace(NodeChunk at);
  void OnRootChecksum(int32_t node, uint64_t checksum);
  void FailNode(int32_t node, const absl::Status& why);

  // Leaf hashes of a chunk, to be filled.
  std::span<uint64_t> LeafHashes(NodeChunk at);

  bool settled(int32_t node) const { return nodes_[node].settled; }
  const absl::Status& failure(int32_t node) const { return nodes_[node].failure; }
  int32_t chunks_in_place(int32_t node) const { return nodes_[node].chunks_done; }
  bool all_nodes_settled() const { return nodes_open_ == 0; }

  // Devices that expect nothing are complete from now on.
  void Begin();
  // An opening or a copy, that of so many bytes.
  void OnItemDone(DeviceRank device, int64_t bytes);
  void FailDevice(DeviceRank device, const absl::Status& why);
  bool device_settled(DeviceRank device) const;

  // The next device that is settled and was not taken yet, with its report.
  std::optional<DeviceReport> TakeSettledDevice();
  bool all_devices_taken() const { return devices_taken_ == devices_.size(); }

  int64_t relays_succeeded() const { return relays_succeeded_; }
  int64_t relays_failed() const { return relays_failed_; }
  int64_t checksum_failures() const { return checksum_failures_; }

 private:
  struct NodeState {
    int32_t chunks_done = 0;  // in place, or for a root hashed
    bool settled = false;
    bool end_taken = false;
    bool has_root_checksum = false;
    uint64_t root_checksum = 0;
    absl::Status failure;
  };
  struct DeviceState {
    DeviceRank device = 0;
    int64_t items_open = 0;
    int64_t bytes = 0;
    bool settled = false;
    bool taken = false;
    absl::Status status;
  };

  DeviceState& DeviceAt(DeviceRank device) { return devices_[device_index_.at(device)]; }
  void SettleIfComplete(int32_t node);
  absl::Status CompareChecksums(int32_t node);
  void SettleDeviceIfComplete(DeviceState& device);
  Digest DigestOf(DeviceRank device);
  std::span<const uint64_t> AllLeafHashes(int32_t node) const;
  size_t IndexOf(NodeChunk at) const { return part_.nodes()[at.node].first_chunk + at.chunk; }

  const PreparedPart& part_;
  const bool checksums_;
  OnNode on_node_;
  std::vector<NodeState> nodes_;
  absl::flat_hash_set<DeviceRank> awaited_sources_;
  std::vector<bool> taken_;     // by chunk
  std::vector<bool> in_place_;  // by chunk; for a root: hashed
  std::vector<uint64_t> leaf_hashes_;
  std::vector<uint64_t> checksums_of_device_;  // kept for its memory
  std::vector<DeviceState> devices_;
  absl::flat_hash_map<DeviceRank, int32_t> device_index_;
  int64_t nodes_open_ = 0;
  size_t devices_taken_ = 0;
  int64_t relays_succeeded_ = 0;
  int64_t relays_failed_ = 0;
  int64_t checksum_failures_ = 0;
};

}  // namespace crossmesh
