#pragma once

#include "worker/executor/executor_resources.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/relay_progress.h"
#include "worker/executor/task.h"
#include "worker/executor/tile_cursor.h"
#include "worker/executor/transfer_table.h"
#include "worker/transport/transport.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace crossmesh {

class SourceScales;

// What the channels of one task share. Confined to the loop.
struct TaskContext {
  const TaskSpec& spec;
  const PreparedPart& part;
  ExecutorResources& shared;
  RelayProgress& progress;
  TaskReport& report;
  TransferOwner& owner;
  const SourceScales& scales;
  int64_t transfers_open = 0;
  // When the last of the sources that were awaited before the first chunk has come.
  std::optional<std::chrono::steady_clock::time_point> source_here = {};
  bool chunk_begun = false;

  void OnSourceHere() {
    if (!chunk_begun) source_here = std::chrono::steady_clock::now();
  }
  void OnChunkBegun() {
    if (std::exchange(chunk_begun, true) || !source_here.has_value()) return;
    report.seconds.first_byte =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - *source_here).count();
  }

  // Every Send and Receive of the task is a transfer until it is completed.
  Ticket AddTransfer(const TransferSubject& subject);
  void RemoveTransfer(Ticket ticket);
  MessageHeader HeaderFor(const PreparedPart::Channel& channel, MessageKind kind,
                          uint64_t sequence) const;

  // Of one of this worker's devices; without tiles it stays unused.
  TileCursor SourceCursor(DeviceRank device) const;
  TileCursor DestinationCursor(DeviceRank device) const;
  // The worker of another worker's device, as an index into TaskSpec::peers, and its name.
  int32_t PeerOf(DeviceRank device) const { return spec.peer_of_device.at(device); }
  const std::string& PeerName(DeviceRank device) const { return spec.peers[PeerOf(device)].worker; }
  // Is nothing left to do but to end transfers?
  bool is_settled() const { return progress.all_nodes_settled() && progress.all_devices_taken(); }
};

// Where the bytes of a chunk are in its class.
inline TileCursor::Range RangeOf(const PreparedPart& part, const PreparedPart::Node& node,
                                 int64_t chunk) {
  const PreparedPart::Chunk bytes = part.ChunkOf(node, chunk);
  return {.slice_class = node.slice_class, .offset = bytes.begin, .bytes = bytes.bytes()};
}

}  // namespace crossmesh
