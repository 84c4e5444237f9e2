#pragma once

#include "crossmesh/v1/pipeline_execution_service.pb.h"
#include "planner/pipeline/op.h"
#include "worker/executor/laid_out_part.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

class MemoryBudget;

// The index-th message of a transfer in an iteration.
struct TransferMessage {
  int32_t transfer = 0;  // index into WorkerProgram::transfers
  int32_t index = 0;

  friend bool operator==(const TransferMessage&, const TransferMessage&) = default;
};

// v1.PipelineProgram or v1.LayerProgram, decoded: what one worker does in an iteration, and what
// each op waits for and gives. Immutable.
struct WorkerProgram {
  static constexpr int64_t kOpsMax = int64_t{1} << 22;
  static constexpr int32_t kBuffersMax = 1 << 16;

  // An edge in one direction, for microbatches of one size, with an end at this worker; or a
  // transfer of a layer program.
  struct Transfer {
    std::string name = {};  // of a layer program's
    int32_t edge = 0;
    bool backward = false;
    StageIndex from = 0;  // of the edge, whatever the direction; in a layer program, ranks
    StageIndex to = 0;
    int64_t samples = 0;
    int32_t buffers = 1;
    uint32_t plan = 0;  // TaskKey::plan of its messages
    std::vector<std::string> tensors;
    std::shared_ptr<const LaidOutPart> part;
    bool sends = false;                         // devices of this worker give what passes
    bool receives = false;                      // devices of this worker get it
    std::vector<MicrobatchIndex> microbatches;  // of its messages, in order; of a pipeline
    // Of a layer program, by message: the op here that gives it or, where none sends, that needs
    // it, as an index into its rank's ops.
    std::vector<int32_t> ops = {};

    int32_t messages() const { return static_cast<int32_t>(microbatches.size() + ops.size()); }
    StageIndex producer() const { return backward ? to : from; }
    StageIndex consumer() const { return backward ? from : to; }
    // "0>1", and "1>0" backward; a layer program's own.
    std::string Name() const;
  };
  struct RankOp {
    Op op;                  // of a pipeline
    std::string name = {};  // of a layer program
    int64_t samples = 0;
    double seconds = 0;  // that it is to take; of a fused op, that the one after it takes with it
    std::vector<TransferMessage> inputs;
    std::vector<TransferMessage> outputs;

    std::string Name() const { return name.empty() ? ToString(op) : name; }
  };
  // What a rank does next: computes a step, or waits for one end of a transfer.
  struct Action {
    enum class Kind : uint8_t { kRun, kSend, kReceive };
    Kind kind = Kind::kRun;
    int32_t op = 0;  // of kRun: the first of the step, an index into the rank's ops
    TransferMessage message;

    friend bool operator==(const Action&, const Action&) = default;
  };
  struct Rank {
    RankIndex rank = 0;
    std::vector<RankOp> ops;
    std::vector<Action> actions;

    // The ops of a step, of which this is the first: one, or two that are fused, which are computed
    // as one.
    std::span<const RankOp> StepAt(int32_t op) const {
      return std::span(ops).subspan(op, ops[op].op.is_fused ? 2 : 1);
    }
    // "3F7", "3F7& 0B3".
    std::string NameOfStep(int32_t op) const;
  };

  std::vector<Rank> ranks;
  std::vector<Transfer> transfers;
  std::vector<int64_t> samples;  // by microbatch; of a pipeline
  bool blocking = false;         // ranks wait for their transfers, which stand among their actions

  // "microbatch 3 of 0>1"; "qkv.sum after m0.qkv.forward", or "before" the op that needs it.
  std::string NameOf(const TransferMessage& message) const;
};

// The program of this name. Its parts take of the memory for as long as they live: a run of a part
// for each buffer of its transfer. InvalidArgument names the rank, op or transfer: a text that is
// no action, an op of a stage that the rank does not have, that is there twice, or that is fused
// with none; a transfer that is there twice, whose part is refused, or has devices but no op of
// this worker at an end; both ends in another order; a pair that is there twice, or whose stages
// are not on one rank. ResourceExhausted: LaidOutPart::Admit, with program and transfer. Cost:
// linear, and that of proving the parts.
absl::StatusOr<WorkerProgram> FromProto(const v1::PipelineProgram& proto, absl::string_view name,
                                        MemoryBudget& memory);

}  // namespace crossmesh
