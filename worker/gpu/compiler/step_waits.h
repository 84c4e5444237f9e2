#pragma once

#include "worker/gpu/compiler/compiled_part.h"
#include "worker/gpu/compiler/step_use.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// Finds what each step must say that it waits for: of the uses of staging that must have ended, the
// last ones, less those that have ended anyway when everything else that the step waits for has.
// Thread-compatible.
class StepWaits {
 public:
  // What must have ended before the packs and before the transfers of a step run: earlier steps.
  struct Needs {
    StepUse before_packs;
    int32_t unpack_before_wire = kNoStep;
  };

  // Of the next step, whose packs are known. Constant cost.
  void Fill(const Needs& needs, CompiledPart::Step& step);

 private:
  // The step, if `known` does not say that its transfers or its unpacks have ended; then it does,
  // with all that has ended before these.
  int32_t WaitForWire(int32_t step, StepUse& known) const;
  int32_t WaitForUnpack(int32_t step, StepUse& known) const;

  StepUse packs_;               // what has ended when the packs of the last step run
  std::vector<StepUse> wires_;  // [step]: what has ended when its transfers have
};

}  // namespace crossmesh
