#include "worker/tasks/admitted_part.h"

#include "common/base/status_macros.h"
#include "common/wire/worker_part_codec.h"
#include "worker/executor/prepared_part.h"

#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// A number of one byte is one of eight in the message that is decoded, and again in the part.
constexpr int64_t kDecodedGrowth = 16;

}  // namespace

absl::StatusOr<std::shared_ptr<const LaidOutPart>> AdmitPart(absl::string_view bytes,
                                                             const Digest& digest,
                                                             MemoryBudget& memory) {
  const std::string name = absl::StrCat("part ", digest.ToString());
  ASSIGN_OR_RETURN(const MemoryBudget::Share decoding,
                   memory.Take(name, ByteCount(kDecodedGrowth * std::ssize(bytes))));
  ASSIGN_OR_RETURN(std::shared_ptr<const WorkerPart> part, ParseWorkerPart(bytes, digest));
  ASSIGN_OR_RETURN(MemoryBudget::Share share,
                   memory.Take(name, ByteCount(PreparedPart::BytesFor(*part))));
  ASSIGN_OR_RETURN(std::shared_ptr<const LaidOutPart> laid_out,
                   LaidOutPart::Create(std::move(part)));
  const LaidOutPart* const made = laid_out.get();
  return std::shared_ptr<const LaidOutPart>(
      made, [share = std::move(share),
             laid_out = std::move(laid_out)](const LaidOutPart* /*made*/) mutable {
        laid_out.reset();
        share.reset();
      });
}

}  // namespace crossmesh
