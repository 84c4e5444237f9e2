#include "worker/executor/relay_progress.h"

#include "worker/executor/leaf_checksum.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {

RelayProgress::RelayProgress(const PreparedPart& part, bool checksums, OnNode on_node)
    : part_(part),
      checksums_(checksums),
      on_node_(std::move(on_node)),
      nodes_(part.nodes().size()),
      taken_(part.chunks()),
      in_place_(part.chunks()),
      leaf_hashes_(checksums ? part.leaves() : 0) {
  for (const DeviceRank device : part.destinations()) {
    device_index_.emplace(device, static_cast<int32_t>(devices_.size()));
    devices_.push_back({.device = device});
  }
  checksums_of_device_.reserve(nodes_.size());
  Rewind();
}

void RelayProgress::Rewind() {
  for (NodeState& node : nodes_) node = NodeState();
  awaited_sources_.clear();
  std::fill(taken_.begin(), taken_.end(), false);
  std::fill(in_place_.begin(), in_place_.end(), false);
  for (DeviceState& device : devices_) device = {.device = device.device};
  nodes_open_ = 0;
  devices_taken_ = 0;
  relays_succeeded_ = relays_failed_ = checksum_failures_ = 0;
  for (const PreparedPart::Node& node : part_.nodes()) {
    if (node.root) continue;
    ++nodes_open_;
    DeviceAt(node.device).items_open++;
  }
  for (const PreparedPart::Channel& channel : part_.channels()) {
    if (channel.reach == PreparedPart::Reach::kIn) DeviceAt(channel.to).items_open++;
  }
  for (const PreparedPart::Copy& copy : part_.copies()) DeviceAt(copy.device).items_open++;
}

void RelayProgress::Begin() {
  for (DeviceState& device : devices_) SettleDeviceIfComplete(device);
}

void RelayProgress::AwaitSource(DeviceRank device) { awaited_sources_.insert(device); }

void RelayProgress::OnSourceReady(DeviceRank device) {
  if (awaited_sources_.erase(device) == 0) return;
  for (int32_t node = 0; node < std::ssize(nodes_); ++node) {
    const PreparedPart::Node& relay = part_.nodes()[node];
    if (relay.root && relay.device == device) on_node_(node);
  }
}

bool RelayProgress::CanSend(NodeChunk at, int32_t lag) const {
  const PreparedPart::Node& relay = part_.nodes()[at.node];
  if (relay.root) return is_source_ready(relay.device);
  // With fewer than `lag` chunks after it the last one of the relay stands for them.
  const int32_t last = std::min<int64_t>(int64_t{at.chunk} + lag, relay.chunks - 1);
  return in_place_[IndexOf(at)] && in_place_[IndexOf({.node = at.node, .chunk = last})];
}

bool RelayProgress::WantsRootHash(NodeChunk at) const {
  return checksums_ && part_.nodes()[at.node].root && !in_place_[IndexOf(at)];
}

void RelayProgress::OnRootHashed(NodeChunk at) {
  in_place_[IndexOf(at)] = true;
  nodes_[at.node].chunks_done++;
}

std::optional<uint64_t> RelayProgress::RootChecksum(int32_t node) {
  NodeState& state = nodes_[node];
  const PreparedPart::Node& relay = part_.nodes()[node];
  // A root makes its checksum when the first channel asks for it; other nodes are told it.
  if (relay.root && !state.has_root_checksum && state.chunks_done == relay.chunks) {
    state.root_checksum = ChecksumOfLeaves(AllLeafHashes(node));
    state.has_root_checksum = true;
  }
  if (!state.has_root_checksum) return std::nullopt;
  return state.root_checksum;
}

bool RelayProgress::TakeChunk(NodeChunk at) {
  if (nodes_[at.node].settled || taken_[IndexOf(at)]) return false;
  taken_[IndexOf(at)] = true;
  return true;
}

bool RelayProgress::TakeEnd(int32_t node) {
  if (nodes_[node].settled || nodes_[node].end_taken) return false;
  nodes_[node].end_taken = true;
  return true;
}

void RelayProgress::OnChunkInPlace(NodeChunk at) {
  in_place_[IndexOf(at)] = true;
  nodes_[at.node].chunks_done++;
  // Settled first: where the checksum differs, the channels that go on find the failure.
  SettleIfComplete(at.node);
  on_node_(at.node);
}

void RelayProgress::OnRootChecksum(int32_t node, uint64_t checksum) {
  nodes_[node].root_checksum = checksum;
  nodes_[node].has_root_checksum = true;
  SettleIfComplete(node);
  on_node_(node);
}

void RelayProgress::SettleIfComplete(int32_t node) {
  NodeState& state = nodes_[node];
  const PreparedPart::Node& relay = part_.nodes()[node];
  if (state.settled || state.chunks_done < relay.chunks) return;
  if (checksums_) {
    if (!state.has_root_checksum) return;
    if (const absl::Status status = CompareChecksums(node); !status.ok()) {
      ++checksum_failures_;
      FailNode(node, status);
      return;
    }
  }
  state.settled = true;
  --nodes_open_;
  ++relays_succeeded_;
  OnItemDone(relay.device, relay.bytes());
}

absl::Status RelayProgress::CompareChecksums(int32_t node) {
  const uint64_t found = ChecksumOfLeaves(AllLeafHashes(node));
  const uint64_t expected = nodes_[node].root_checksum;
  if (found == expected) return absl::OkStatus();
  const PreparedPart::Node& relay = part_.nodes()[node];
  return absl::DataLossError(absl::StrFormat(
      "%s, bytes [%d, %d) of class %d: expected checksum %016x of its root, found "
      "%016x in place",
      NameOf(part_, relay), relay.begin, relay.end, relay.slice_class, expected, found));
}

// A root receives nothing, so nothing of it can fail here.
void RelayProgress::FailNode(int32_t node, const absl::Status& why) {
  NodeState& state = nodes_[node];
  if (state.settled || part_.nodes()[node].root) return;
  state.settled = true;
  state.failure = why;
  --nodes_open_;
  ++relays_failed_;
  FailDevice(part_.nodes()[node].device, why);
  on_node_(node);
}

std::span<uint64_t> RelayProgress::LeafHashes(NodeChunk at) {
  const PreparedPart::Node& relay = part_.nodes()[at.node];
  const PreparedPart::Chunk leaves = part_.ChunkOf(relay, at.chunk);
  return std::span(leaf_hashes_).subspan(relay.first_leaf + leaves.first_leaf, leaves.leaf_count);
}

std::span<const uint64_t> RelayProgress::AllLeafHashes(int32_t node) const {
  const PreparedPart::Node& relay = part_.nodes()[node];
  return std::span(leaf_hashes_).subspan(relay.first_leaf, relay.leaves);
}

void RelayProgress::OnItemDone(DeviceRank device, int64_t bytes) {
  DeviceState& state = DeviceAt(device);
  state.items_open--;
  state.bytes += bytes;
  SettleDeviceIfComplete(state);
}

void RelayProgress::FailDevice(DeviceRank device, const absl::Status& why) {
  DeviceState& state = DeviceAt(device);
  if (state.settled) return;
  state.status = why;
  state.settled = true;
}

bool RelayProgress::device_settled(DeviceRank device) const {
  return devices_[device_index_.at(device)].settled;
}

void RelayProgress::SettleDeviceIfComplete(DeviceState& device) {
  if (device.items_open == 0) device.settled = true;
}

std::optional<DeviceReport> RelayProgress::TakeSettledDevice() {
  for (DeviceState& device : devices_) {
    if (!device.settled || device.taken) continue;
    device.taken = true;
    ++devices_taken_;
    DeviceReport report{.device = device.device, .status = device.status, .bytes = device.bytes};
    if (checksums_ && report.status.ok()) report.digest = DigestOf(device.device);
    return report;
  }
  return std::nullopt;
}

Digest RelayProgress::DigestOf(DeviceRank device) {
  // Nodes are in the order of the plan, and so are the checksums.
  checksums_of_device_.clear();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const PreparedPart::Node& node = part_.nodes()[i];
    if (node.device == device && !node.root)
      checksums_of_device_.push_back(nodes_[i].root_checksum);
  }
  return Digest::Of(std::as_bytes(std::span(checksums_of_device_)));
}

}  // namespace crossmesh
