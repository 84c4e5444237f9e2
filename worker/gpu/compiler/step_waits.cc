#include "worker/gpu/compiler/step_waits.h"

#include <algorithm>

namespace crossmesh {

void StepWaits::Fill(const Needs& needs, CompiledPart::Step& step) {
  const auto [wire, unpack] = needs.before_packs;
  // The later of the two first: it may imply the other.
  if (wire > unpack) {
    step.pack_after_wire = WaitForWire(wire, packs_);
    step.pack_after_unpack = WaitForUnpack(unpack, packs_);
  } else {
    step.pack_after_unpack = WaitForUnpack(unpack, packs_);
    step.pack_after_wire = WaitForWire(wire, packs_);
  }
  // Transfers follow those of the step before on their stream, and wait for their own packs.
  StepUse ended = wires_.empty() ? StepUse{} : wires_.back();
  if (!step.packs.empty()) ended.Join(packs_);
  step.wire_after_unpack = WaitForUnpack(needs.unpack_before_wire, ended);
  ended.wire = static_cast<int32_t>(wires_.size());
  wires_.push_back(ended);
}

int32_t StepWaits::WaitForWire(int32_t step, StepUse& known) const {
  if (step <= known.wire) return kNoStep;
  // When these transfers have ended, all that they waited for themselves has.
  known.Join(wires_[step]);
  return step;
}

int32_t StepWaits::WaitForUnpack(int32_t step, StepUse& known) const {
  if (step <= known.unpack) return kNoStep;
  known.Join(wires_[step]);  // what is unpacked has come by these
  known.unpack = std::max(known.unpack, step);
  return step;
}

}  // namespace crossmesh
