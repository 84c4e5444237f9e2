#pragma once

#include "common/base/digest.h"
#include "worker/executor/laid_out_part.h"
#include "worker/memory/memory_budget.h"

#include <memory>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The part in `bytes`, ready to run. It takes of the memory for as long as it lives.
// ResourceExhausted: there is too little, with the figures, before it is spent; else as
// ParseWorkerPart and LaidOutPart::Create say.
absl::StatusOr<std::shared_ptr<const LaidOutPart>> AdmitPart(absl::string_view bytes,
                                                             const Digest& digest,
                                                             MemoryBudget& memory);

}  // namespace crossmesh
