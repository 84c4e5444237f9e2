// A worker's program of a pipeline, or of layers, as it comes from a controller: what is accepted
// names only messages that there are, and can begin.

#include "common/base/check.h"
#include "tests/fuzz/fuzz_input.h"
#include "worker/memory/memory_budget.h"
#include "worker/pipeline/layer_worker_program.h"
#include "worker/pipeline/program_progress.h"
#include "worker/pipeline/worker_program.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <google/protobuf/stubs/logging.h>

namespace crossmesh {
namespace {

// Few bytes can stand for many microbatches.
constexpr int64_t kMicrobatchesMax = 10'000;
// And for many chunks.
constexpr ByteCount kMemoryMax(int64_t{1} << 30);

void CheckMessages(const WorkerProgram& program, const std::vector<TransferMessage>& messages) {
  for (const TransferMessage& message : messages) {
    CHECK(message.transfer >= 0 && message.transfer < std::ssize(program.transfers));
    CHECK(message.index >= 0 && message.index < program.transfers[message.transfer].messages());
  }
}

void CheckProgram(const absl::StatusOr<WorkerProgram>& program) {
  if (!program.ok()) return;
  for (const WorkerProgram::Rank& rank : program->ranks) {
    for (const WorkerProgram::RankOp& op : rank.ops) {
      CheckMessages(*program, op.inputs);
      CheckMessages(*program, op.outputs);
    }
    // All ops are computed, in their order.
    int32_t next = 0;
    for (const WorkerProgram::Action& action : rank.actions) {
      if (action.kind == WorkerProgram::Action::Kind::kRun) {
        CHECK(action.op == next && action.op < std::ssize(rank.ops));
        next += rank.ops[action.op].op.is_fused ? 2 : 1;
      } else {
        CheckMessages(*program, {action.message});
      }
    }
    CHECK_EQ(next, std::ssize(rank.ops));
  }
  ProgramProgress progress(*program);
  progress.Begin();
  for (int32_t rank = 0; rank < std::ssize(program->ranks); ++rank) progress.PositionOf(rank);
}

void FuzzLayers(const uint8_t* data, size_t size) {
  v1::LayerProgram proto;
  if (!proto.ParseFromArray(data, static_cast<int>(size))) return;
  MemoryBudget memory{kMemoryMax};
  CheckProgram(FromProto(proto, "program", memory));
}

}  // namespace

void FuzzOne(const uint8_t* data, size_t size) {
  static const google::protobuf::LogSilencer quiet;
  FuzzLayers(data, size);
  v1::PipelineProgram proto;
  if (!proto.ParseFromArray(data, static_cast<int>(size))) return;
  int64_t microbatches = 0;
  for (const auto& run : proto.microbatches()) microbatches += run.count();
  if (microbatches > kMicrobatchesMax) return;
  MemoryBudget memory{kMemoryMax};
  CheckProgram(FromProto(proto, "program", memory));
}

}  // namespace crossmesh
