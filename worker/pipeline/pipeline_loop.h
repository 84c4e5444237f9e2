#pragma once

#include "common/mesh/box.h"
#include "common/mesh/data_type.h"
#include "common/mesh/device.h"
#include "planner/pipeline/op.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// A tensor that an op reads or writes, on the devices of this process.
struct PipelineTensor {
  // The part of it that one device holds: its boxes one after the other, each row-major, as the
  // layout orders them. Empty where it holds nothing.
  struct Tile {
    DeviceId device;
    std::span<std::byte> bytes;
    std::vector<Box> boxes = {};
  };
  std::string name;
  StageIndex other_stage = 0;  // where it comes from, or goes to; in a layer program, the rank
  std::string transfer = {};   // "0>1"; of a layer program its own name
  DataType type{};
  std::vector<int64_t> shape;  // of the whole, for microbatches of this size
  std::vector<Tile> tiles;     // by device; none of devices whose part is neither sent nor received
};

// What to compute next, in a pipeline or a layer program. A gradient has the name of its
// activation.
struct PipelineOp {
  int64_t iteration = 0;
  Op op;                                // of a pipeline
  std::string name = {};                // "0F3"; of a layer program its own
  int32_t place = 0;                    // among the rank's ops
  int64_t samples = 0;                  // of the microbatch; of a pipeline
  double seconds = 0;                   // that it is profiled to take; of a fused one, both
  std::vector<PipelineTensor> inputs;   // to be read until Done: copy what is needed later
  std::vector<PipelineTensor> outputs;  // to be filled before Done
};

// What the loop of a process is told.
struct PipelineStep {
  enum class Kind : uint8_t {
    kOp,        // compute it, then Done
    kPair,      // compute `op`, a forward op, and `backward` as one, then Done
    kComplete,  // the iteration is complete on all ranks: weights may change
    // Before the first op: processes of the lost ranks were replaced since the last iteration that
    // was begun. Whatever they knew of the iterations before is gone, such as their weights; this
    // process may be such a new one. Done when this process can go on with all others, for example
    // since it has read the checkpoint that they read as well; Fail, and the run ends FAILED with
    // this reason. Next, or the end of the loop, without an answer is Fail. Iterations begin once
    // all ranks have answered; if that fails the same is asked again. The limit is 10 minutes.
    kStateLost,
    kOver,  // nothing follows. `why` is OK when the run is done; otherwise it was cut short, and
            // goes on with another loop
  };
  Kind kind = Kind::kOver;
  const PipelineOp* op = nullptr;        // of kOp and kPair; until Done
  const PipelineOp* backward = nullptr;  // of kPair; until Done
  // Of kComplete; of kStateLost, the last that is complete on all ranks, or -1: none is.
  int64_t iteration = 0;
  std::vector<RankIndex> lost_ranks;  // of kStateLost, ascending
  absl::Status why;
};

// The side of a pipeline's run on which a training process computes: one rank, on the devices that
// this process has of it. Thread-compatible; used by one thread of the process.
//
// A run that is cut short goes on with another loop. Whether its last iteration is complete is not
// known then: the next loop may begin with kComplete of it, or with an op of a later one, when what
// it left is to be dropped. It may also name an iteration for the second time. After kComplete and
// before all ops comes kStateLost, if a process of any rank was replaced meanwhile.
//
//   for (;;) {
//     const PipelineStep step = loop.Next();
//     if (step.kind == PipelineStep::Kind::kOver) return step.why;
//     if (step.kind == PipelineStep::Kind::kComplete) ApplyGradients();
//     if (step.kind == PipelineStep::Kind::kStateLost) { ReadCheckpoint(); loop.Done(); }
//     if (step.kind == PipelineStep::Kind::kOp) { Compute(*step.op); loop.Done(); }
//     if (step.kind == PipelineStep::Kind::kPair) {
//       Compute(*step.op, *step.backward);
//       loop.Done();
//     }
//   }
//
// Only schedules that have fused ops give pairs; Next without an answer to one is Fail.
class PipelineLoop {
 public:
  // Gives the run up, unless it is over.
  virtual ~PipelineLoop() = default;
  virtual RankIndex rank() const = 0;
  // Stages and microbatches of the rank's schedule, in order; the same in every iteration. Of a
  // layer program as many as it has ops, whose names alone say what they are.
  virtual const std::vector<Op>& ops() const = 0;
  // Blocks until there is something to do: an op, or a pair, begins when its inputs are in place
  // and there is room for its outputs.
  virtual PipelineStep Next() = 0;
  // Whether Next returns at once, or does so within the time.
  virtual bool WaitForNext(absl::Duration timeout) = 0;
  // The op of the last Next is done, or the pair: what it gives starts to move at once. Or the
  // process goes on although state is lost.
  virtual void Done() = 0;
  // It cannot be done: the iteration fails everywhere, with this reason; where state is lost, the
  // run.
  virtual void Fail(const absl::Status& why) = 0;
  // Gives the run up, unless it is over; afterwards only the memory of tensors is left. Repeatable.
  virtual void Leave() = 0;
  // Done where it is OK, else Fail.
  void Answer(const absl::Status& status) {
    if (status.ok()) {
      Done();
    } else {
      Fail(status);
    }
  }
};

}  // namespace crossmesh
