#pragma once

#include "worker/gpu/communicators/communicator.h"
#include "worker/gpu/compiler/compiled_part.h"
#include "worker/gpu/executor/execution_resources.h"
#include "worker/gpu/executor/step_launches.h"
#include "worker/gpu/kernels/kernel_arguments.h"

#include <cstdint>
#include <span>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

class BoundLeg;

// Puts the steps of a bound leg on the streams, a bounded number ahead of those that are
// done, and sees them done by their events. Confined to the thread of the Gpu, which it never makes
// wait: it calls nothing but launches, copies within the GPU, records, waits and queries of events,
// and the communicator. Allocates nothing.
//
// The scales of source tiles belong to the first step. A step is begun when its packs and its group
// are queued. The group counts as queued, and the stream may be used, when the communicator says
// that it is idle; then the step is ended: the event after the group is recorded, and copies and
// unpacks are queued. The next step begins after that. What a step waits for and is done already is
// not waited for: its events may be another step's by now. Reductions follow the last unpacks, on
// their stream.
class StepPipeline {
 public:
  // Payload of the steps that are done. The root of a broadcast sends it once.
  struct Bytes {
    int64_t sent = 0;
    int64_t received = 0;
    int64_t copied = 0;

    void Add(const Bytes& other) {
      sent += other.sent;
      received += other.received;
      copied += other.copied;
    }
  };

  struct Ranks {
    Communicator& communicator;
    std::span<const int> of;             // by DeviceRank of the whole part
    const RankGroups* groups = nullptr;  // of the leg's collective; null: it is of all
  };

  // All must outlive this.
  StepPipeline(const BoundLeg& leg, const Ranks& ranks, ExecutionResources& shared);

  // What Advance found of the steps that were on the streams.
  struct Found {
    int32_t done = 0;
    int32_t left = 0;
  };

  // Looks what is done, and issues what may be issued. Whether anything was. After an error, of the
  // communicator or the GPU, it is not to be called again.
  absl::StatusOr<bool> Advance();

  bool is_done() const { return are_steps_done() && reduction_ == Reducing::kDone; }
  // Whether anything of it may be on the streams.
  bool is_under_way() const {
    return is_begun_ || done_ < issued_ || reduction_ == Reducing::kQueued;
  }
  const Found& found() const { return found_; }
  int32_t steps_done() const { return done_; }
  const Bytes& bytes() const { return bytes_; }
  // The first step that is not done, with its peers; for errors.
  std::string Missing() const;

 private:
  using Step = CompiledPart::Step;
  enum class Reducing : uint8_t { kNotYet, kQueued, kDone };

  static bool HasTransfers(const Step& step) {
    return step.m2n || step.collective || !step.sends.empty() || !step.receives.empty() ||
           !step.broadcasts.empty();
  }
  StreamEvents& EventsOf(int32_t step) const {
    return shared_.step_events[step % shared_.step_events.size()];
  }
  int RankOf(DeviceRank device) const;
  bool are_steps_done() const { return done_ == std::ssize(compiled_.steps()); }
  bool are_steps_issued() const { return !is_begun_ && issued_ == std::ssize(compiled_.steps()); }
  bool may_begin() const {
    return !is_begun_ && issued_ < std::ssize(compiled_.steps()) &&
           issued_ - done_ < std::ssize(shared_.step_events);
  }

  absl::Status BeginStep();
  absl::Status EndStep();
  absl::Status QueueScales();
  // Of packs or unpacks, between boxes and staging. Hashes are not set.
  PackArguments ArgumentsOf(const StepLaunches::Launch<PackArguments>& launch) const;
  absl::Status QueuePacks(const Step& step);
  absl::Status QueueTransfers(const Step& step);
  absl::Status QueueBroadcasts(const Step& step);
  absl::Status QueueCollective();
  absl::Status QueueCopies();
  absl::Status QueueUnpacks(const Step& step);
  absl::Status QueueReductions();
  // Of the hashes that came, for the host.
  absl::Status QueueRootHashes();
  // `stream` goes on when that step's transfers or unpacks have ended.
  absl::Status WaitForWire(GpuStream& stream, int32_t step);
  absl::Status WaitForUnpack(GpuStream& stream, int32_t step);

  absl::Status NoteDone();
  absl::StatusOr<bool> IsDone(int32_t step) const;
  void CountBytes(const Step& step);

  const BoundLeg& leg_;
  const CompiledPart& compiled_;
  Communicator& communicator_;
  const Ranks ranks_;
  ExecutionResources& shared_;
  int32_t done_ = 0;
  int32_t issued_ = 0;
  bool is_begun_ = false;  // step issued_, whose group is in progress
  Reducing reduction_ = Reducing::kNotYet;
  Found found_;
  Bytes bytes_;
};

}  // namespace crossmesh
