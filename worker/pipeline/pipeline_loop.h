#pragma once

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

namespace crossmesh {

// A tensor that an op reads or writes, on the devices of this process.
struct PipelineTensor {
  // The part of it that one device holds: its boxes one after the other, each row-major, as the
  // layout orders them. Empty where it holds nothing.
  struct Tile {
    DeviceId device;
    std::span<std::byte> bytes;
  };
  std::string name;
  StageIndex other_stage = 0;  // where it comes from, or goes to
  DataType type{};
  std::vector<int64_t> shape;  // of the whole, for microbatches of this size
  std::vector<Tile> tiles;     // by device; none of devices whose part is neither sent nor received
};

// What to compute next. A gradient has the name of its activation.
struct PipelineOp {
  int64_t iteration = 0;
  Op op;
  int64_t samples = 0;                  // of the microbatch
  double seconds = 0;                   // that it is profiled to take
  std::vector<PipelineTensor> inputs;   // to be read until Done: copy what is needed later
  std::vector<PipelineTensor> outputs;  // to be filled before Done
};

// What the loop of a process is told.
struct PipelineStep {
  enum class Kind : uint8_t {
    kOp,        // compute it, then Done
    kComplete,  // the iteration is complete on all ranks: weights may change
    kOver,  // nothing follows. `why` is OK when the run is done; otherwise it was cut short, and
            // goes on with another loop
  };
  Kind kind = Kind::kOver;
  const PipelineOp* op = nullptr;  // of kOp; until Done
  int64_t iteration = 0;           // of kComplete
  absl::Status why;
};

// The side of a pipeline's run on which a training process computes: one rank, on the devices that
// this process has of it. Thread-compatible; used by one thread of the process.
//
// A run that is cut short goes on with another loop. Whether its last iteration is complete is not
// known then: the next loop may begin with kComplete of it, or with an op of a later one, when what
// it left is to be dropped. It may also name an iteration for the second time.
//
//   for (;;) {
//     const PipelineStep step = loop.Next();
//     if (step.kind == PipelineStep::Kind::kOver) return step.why;
//     if (step.kind == PipelineStep::Kind::kComplete) ApplyGradients();
//     if (step.kind == PipelineStep::Kind::kOp) { Compute(*step.op); loop.Done(); }
//   }
class PipelineLoop {
 public:
  // Gives the run up, unless it is over.
  virtual ~PipelineLoop() = default;
  virtual RankIndex rank() const = 0;
  // Stages and microbatches of the rank's schedule, in order; the same in every iteration.
  virtual const std::vector<Op>& ops() const = 0;
  // Blocks until there is something to do: an op begins when its inputs are in place and there is
  // room for its outputs.
  virtual PipelineStep Next() = 0;
  // The op of the last Next is done: what it gives starts to move at once.
  virtual void Done() = 0;
  // It cannot be done: the iteration fails everywhere, with this reason.
  virtual void Fail(const absl::Status& why) = 0;
};

}  // namespace crossmesh
