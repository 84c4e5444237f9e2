#pragma once

#include "common/metrics/label_set.h"

#include <cstdint>

#include <absl/time/time.h>

namespace crossmesh {

// What a worker records. Implementations are thread-safe and never block, but are not for a path
// taken per chunk: give totals per relay, per task, or every 100 ms.
class WorkerMetrics {
 public:
  struct RelayFacts {
    TransportLink link = TransportLink::kInprocessLocal;
    RelayKind kind = RelayKind::kRoot;
    RelayResult result = RelayResult::kSucceeded;
    int64_t bytes = 0;
    absl::Duration duration;  // from its first chunk to its last
  };

  virtual ~WorkerMetrics() = default;

  virtual void SetRegistered(bool registered) = 0;
  virtual void SessionReconnect(ReconnectReason reason) = 0;
  virtual void CommandRejected(CommandRejection reason) = 0;

  virtual void Transferred(TransportLink link, int64_t sent_bytes, int64_t received_bytes) = 0;
  // Its result counts always, its time and throughput when it succeeded.
  virtual void RelayEnded(const RelayFacts& relay) = 0;
  virtual void SetRelaysInProgress(TransportKind transport, int64_t relays) = 0;
  // Time that tasks spent in a phase; phases of one task overlap.
  virtual void PhaseTime(TransferPhase phase, absl::Duration duration) = 0;
  virtual void SetLastProgress(absl::Time time) = 0;

  virtual void ChannelStalled(TransportLink link) = 0;
  virtual void ChecksumFailed(TransportLink link) = 0;

  virtual void SetStagingBytes(int64_t used, int64_t limit) = 0;
  // Processes of GPUs that can be used, and that cannot.
  virtual void SetGpus(int64_t up, int64_t down) = 0;
  // One that was up; another takes its place.
  virtual void GpuProcessLost() = 0;

  // In readable arenas; in arenas that wait for a commit.
  virtual void SetTensorBytes(int64_t resident, int64_t receiving) = 0;
};

class NullWorkerMetrics : public WorkerMetrics {
 public:
  void SetRegistered(bool /*registered*/) override {}
  void SessionReconnect(ReconnectReason /*reason*/) override {}
  void CommandRejected(CommandRejection /*reason*/) override {}
  void Transferred(TransportLink /*link*/, int64_t /*sent_bytes*/,
                   int64_t /*received_bytes*/) override {}
  void RelayEnded(const RelayFacts& /*relay*/) override {}
  void SetRelaysInProgress(TransportKind /*transport*/, int64_t /*relays*/) override {}
  void PhaseTime(TransferPhase /*phase*/, absl::Duration /*duration*/) override {}
  void SetLastProgress(absl::Time /*time*/) override {}
  void ChannelStalled(TransportLink /*link*/) override {}
  void ChecksumFailed(TransportLink /*link*/) override {}
  void SetStagingBytes(int64_t /*used*/, int64_t /*limit*/) override {}
  void SetGpus(int64_t /*up*/, int64_t /*down*/) override {}
  void GpuProcessLost() override {}
  void SetTensorBytes(int64_t /*resident*/, int64_t /*receiving*/) override {}
};

}  // namespace crossmesh
