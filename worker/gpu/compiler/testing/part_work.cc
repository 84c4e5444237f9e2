#include "worker/gpu/compiler/testing/part_work.h"

#include <iterator>

namespace crossmesh {

double PartWork::gibibytes() const {
  return static_cast<double>(bytes) / static_cast<double>(int64_t{1} << 30);
}

PartWork WorkOf(const CompiledPart& part) {
  PartWork work{.steps = std::ssize(part.steps())};
  for (const CompiledPart::Step& step : part.steps()) {
    for (const auto& transfers : {part.sends(step), part.receives(step), part.broadcasts(step)}) {
      work.messages += std::ssize(transfers);
      for (const CompiledPart::Transfer& transfer : transfers) work.bytes += transfer.bytes;
    }
    const bool is_silent = step.sends.empty() && step.receives.empty() && step.broadcasts.empty();
    work.groups += is_silent ? 0 : 1;
    work.launches += step.packs.empty() ? 0 : 1;
    work.launches += step.unpacks.empty() ? 0 : 1;
    work.launches += step.copies.empty() ? 0 : 1;
  }
  return work;
}

}  // namespace crossmesh
