#include "worker/pipeline/admitted_program.h"

#include "common/base/status_macros.h"
#include "worker/memory/memory_budget.h"
#include "worker/pipeline/layer_worker_program.h"
#include "worker/pipeline/pipeline_loop.h"
#include "worker/wire/decoded_bytes.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// What the ops and messages of a program take, while it is decoded and while it runs, at most
// nearly.
ByteCount BytesFor(const v1::PipelineProgram& proto) {
  // A vector that grows has its old memory and twice as much. Beside that the sets that a decoder
  // finds ops by, vectors of inputs and outputs, and the times of a report.
  constexpr double kOpBytes =
      3 * (sizeof(WorkerProgram::RankOp) + sizeof(WorkerProgram::Action)) + 128;
  // Its state, and five figures of a report.
  constexpr double kMessageBytes = 3 * sizeof(MicrobatchIndex) + 64;
  double ops = 0;
  for (const v1::PipelineProgram::Rank& rank : proto.ranks()) {
    ops += static_cast<double>(1 + std::ranges::count(rank.actions(), ' '));
  }
  double microbatches = 0;
  for (const v1::PipelineProgram::Microbatches& run : proto.microbatches()) {
    microbatches += std::max(run.count(), 0);
  }
  // No transfer has more messages than there are ops.
  const double messages = proto.transfers_size() * std::min(ops, microbatches);
  return ByteCount(static_cast<int64_t>(ops * kOpBytes + messages * kMessageBytes +
                                        microbatches * sizeof(int64_t)));
}

// Beside that of the ops, what these see of their tensors at either end.
ByteCount BytesFor(const v1::LayerProgram& proto) {
  constexpr double kOpBytes =
      3 * (sizeof(WorkerProgram::RankOp) + sizeof(WorkerProgram::Action)) + 128;
  constexpr double kMessageBytes = 3 * sizeof(int32_t) + 64 + 2 * 3 * sizeof(TransferMessage);
  constexpr double kTensorBytes = 2 * sizeof(PipelineTensor) + 128;
  double bytes = 0;
  for (const v1::LayerProgram::Rank& rank : proto.ranks()) {
    for (const v1::LayerProgram::Op& op : rank.ops()) {
      bytes += kOpBytes + 2 * static_cast<double>(op.name().size());
    }
  }
  for (const v1::LayerProgram::Transfer& transfer : proto.transfers()) {
    double of_message = kMessageBytes;
    for (const std::string& tensor : transfer.tensors()) {
      of_message += kTensorBytes + 2 * static_cast<double>(tensor.size() + transfer.name().size());
    }
    bytes += transfer.messages_size() * of_message;
  }
  return ByteCount(static_cast<int64_t>(bytes));
}

template <typename Proto>
absl::StatusOr<std::shared_ptr<const WorkerProgram>> Admit(absl::string_view name,
                                                           absl::string_view bytes,
                                                           MemoryBudget& memory) {
  ASSIGN_OR_RETURN(const MemoryBudget::Share decoding, memory.Take(name, DecodedBytes(bytes)));
  Proto proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", bytes.size(), " bytes are none"));
  }
  ASSIGN_OR_RETURN(MemoryBudget::Share share, memory.Take(name, BytesFor(proto)));
  ASSIGN_OR_RETURN(WorkerProgram program, FromProto(proto, name, memory));
  return MemoryBudget::Bind(std::make_shared<const WorkerProgram>(std::move(program)),
                            std::move(share));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const WorkerProgram>> AdmitProgram(absl::string_view name,
                                                                  absl::string_view bytes,
                                                                  MemoryBudget& memory) {
  return Admit<v1::PipelineProgram>(name, bytes, memory);
}

absl::StatusOr<std::shared_ptr<const WorkerProgram>> AdmitLayerProgram(absl::string_view name,
                                                                       absl::string_view bytes,
                                                                       MemoryBudget& memory) {
  return Admit<v1::LayerProgram>(name, bytes, memory);
}

}  // namespace crossmesh
