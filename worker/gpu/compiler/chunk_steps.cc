#include "worker/gpu/compiler/chunk_steps.h"

#include "common/plan/chunk_periods.h"

namespace crossmesh {

std::vector<int64_t> ChunkSteps(const PreparedPart& part, const PreparedPart::Node& node) {
  ChunkPeriods periods(part.part().spec().periods, part.chunk_bytes());
  std::vector<int64_t> steps;
  steps.reserve(node.chunks);
  for (int32_t chunk = 0; chunk < node.chunks; ++chunk) {
    steps.push_back(
        periods.Next(node.due.Of(chunk, node.chunks), part.ChunkOf(node, chunk).bytes()));
  }
  return steps;
}

}  // namespace crossmesh
