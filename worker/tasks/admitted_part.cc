#include "worker/tasks/admitted_part.h"

#include "common/base/status_macros.h"
#include "common/wire/worker_part_codec.h"
#include "worker/wire/decoded_bytes.h"

#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::StatusOr<std::shared_ptr<const LaidOutPart>> AdmitPart(absl::string_view bytes,
                                                             const Digest& digest,
                                                             MemoryBudget& memory) {
  const std::string name = absl::StrCat("part ", digest.ToString());
  ASSIGN_OR_RETURN(const MemoryBudget::Share decoding, memory.Take(name, DecodedBytes(bytes)));
  ASSIGN_OR_RETURN(std::shared_ptr<const WorkerPart> part, ParseWorkerPart(bytes, digest));
  return LaidOutPart::Admit(std::move(part), {.name = name, .memory = memory});
}

}  // namespace crossmesh
