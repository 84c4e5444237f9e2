#include "worker/gpu/compiler/chunk_steps.h"

#include "common/plan/plan.h"

namespace crossmesh {
namespace {

// Where chunks begin at a tensor's edges, a relay has more of them than periods; and two may begin
// in one period where they are as long as one.
constexpr int64_t kLargestChunksOfStep = 2;

// Due times are rounded down, to parts of the run: a third of it lies just before the second of
// three periods. What is due so little before a period is due in it.
constexpr int64_t kRoundedParts = DueTime::kParts / 64;

int64_t PeriodOf(int32_t due, int64_t periods) {
  return (due * periods + kRoundedParts) / DueTime::kParts;
}

}  // namespace

std::vector<int64_t> ChunkSteps(const PreparedPart& part, const PreparedPart::Node& node) {
  const int64_t periods = part.part().spec().periods;
  const int64_t bytes_max = kLargestChunksOfStep * part.chunk_bytes();
  std::vector<int64_t> steps;
  steps.reserve(node.chunks);
  int64_t step = 0;
  int64_t step_bytes = 0;
  for (int32_t chunk = 0; chunk < node.chunks; ++chunk) {
    const int64_t bytes = part.ChunkOf(node, chunk).bytes();
    const int64_t due = PeriodOf(node.due.Of(chunk, node.chunks), periods);
    if (due > step) {
      step = due;
      step_bytes = 0;
    } else if (step_bytes + bytes > bytes_max) {
      ++step;
      step_bytes = 0;
    }
    step_bytes += bytes;
    steps.push_back(step);
  }
  return steps;
}

}  // namespace crossmesh
