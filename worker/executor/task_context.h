#pragma once

#include "common/plan/plan.h"
#include "worker/executor/executor.h"
#include "worker/executor/relay_progress.h"
#include "worker/executor/source_scales.h"
#include "worker/executor/staging_pool.h"
#include "worker/executor/task.h"
#include "worker/executor/tile_cursor.h"
#include "worker/executor/transfer_table.h"
#include "worker/transport/transport.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace crossmesh {

// What the tasks of one executor share. Confined to the loop.
struct ExecutorResources {
  ExecutorResources(Transport& over, const ExecutorOptions& chosen, std::shared_ptr<Arena> sent,
                    std::shared_ptr<Arena> received)
      : transport(over),
        options(chosen),
        send_staging(std::move(sent)),
        receive_staging(std::move(received)) {}

  Transport& transport;
  const ExecutorOptions options;
  StagingPool send_staging;
  StagingPool receive_staging;
  TransferTable transfers;
  ExecutorCounters counters;
  std::array<std::byte, Plan::kLeafBytes> leaf_scratch;
};

// What the channels of one task share. Confined to the loop.
struct TaskContext {
  const TaskSpec& spec;
  const PreparedPart& part;
  ExecutorResources& shared;
  RelayProgress& progress;
  TaskReport& report;
  TaskExecution& task;
  const SourceScales& scales;
  int64_t transfers_open = 0;
  // Since when the last awaited source has been here of those before the first chunk.
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
  // The worker at the other end of a channel, by name.
  const std::string& PeerName(DeviceRank device) const {
    return spec.peers[spec.peer_of_device.at(device)].worker;
  }
};

// Where the bytes of a chunk are in its class.
inline TileCursor::Range RangeOf(const PreparedPart& part, const PreparedPart::Node& node,
                                 int64_t chunk) {
  const PreparedPart::Chunk bytes = part.ChunkOf(node, chunk);
  return {.slice_class = node.slice_class, .offset = bytes.begin, .bytes = bytes.bytes()};
}

// "channel a.0 -> b.1", for messages.
std::string NameOf(const PreparedPart& part, const PreparedPart::Channel& channel);

// Adds the time between construction and destruction to `seconds`.
class PhaseTimer {
 public:
  explicit PhaseTimer(double& seconds)
      : seconds_(seconds), start_(std::chrono::steady_clock::now()) {}
  ~PhaseTimer() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  double& seconds_;
  const std::chrono::steady_clock::time_point start_;
};

// Counts the rounds of the task's stall timer in which something that was waited for did not move.
// Counting rounds instead of reading a clock makes a worker that was itself stopped for a while
// not blame others at once.
class StallCounter {
 public:
  static constexpr int kRoundsMax = 4;  // a stall limit has this many rounds
  // Of a receiver. Both ends of a cut link notice it, and accuse each other; the sender is to be
  // heard first, since of two that lack an answer the other one is taken to be gone.
  static constexpr int kReceiverRoundsMax = kRoundsMax + 1;

  explicit StallCounter(int rounds_max = kRoundsMax) : rounds_max_(rounds_max) {}

  void OnProgress() { rounds_ = 0; }
  // Once a round. True when it has been too long.
  bool OnRound(bool waiting) {
    if (!waiting) rounds_ = 0;
    return waiting && ++rounds_ > rounds_max_;
  }
  int rounds() const { return rounds_; }

 private:
  int rounds_max_;
  int rounds_ = 0;
};

}  // namespace crossmesh
