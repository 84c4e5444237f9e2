#include "worker/pipeline/admitted_program.h"

#include "common/base/status_macros.h"
#include "worker/memory/memory_budget.h"
#include "worker/wire/decoded_bytes.h"

#include <algorithm>
#include <cstdint>
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

}  // namespace

absl::StatusOr<std::shared_ptr<const WorkerProgram>> AdmitProgram(absl::string_view name,
                                                                  absl::string_view bytes,
                                                                  MemoryBudget& memory) {
  ASSIGN_OR_RETURN(const MemoryBudget::Share decoding, memory.Take(name, DecodedBytes(bytes)));
  v1::PipelineProgram proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", bytes.size(), " bytes are none"));
  }
  ASSIGN_OR_RETURN(MemoryBudget::Share share, memory.Take(name, BytesFor(proto)));
  ASSIGN_OR_RETURN(WorkerProgram program, FromProto(proto, name, memory));
  return MemoryBudget::Bind(std::make_shared<const WorkerProgram>(std::move(program)),
                            std::move(share));
}

}  // namespace crossmesh
