#include "worker/memory/sequence_page.h"

#include "common/base/byte_count.h"
#include "common/base/status_macros.h"

#include <atomic>
#include <new>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::StatusOr<std::shared_ptr<SequencePage>> SequencePage::Create(std::string storage,
                                                                   uint64_t generation) {
  ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena,
                   Arena::Create(absl::StrCat("crossmesh: sequence of ", storage),
                                 ByteCount(kSequencePageBytes), Arena::Pages::kSmall));
  std::shared_ptr<SequencePage> page(new SequencePage(std::move(storage), std::move(arena)));
  page->Publish(generation);
  return page;
}

SequencePage::SequencePage(std::string storage, std::shared_ptr<Arena> arena)
    : storage_(std::move(storage)),
      arena_(std::move(arena)),
      words_(new(arena_->bytes().data()) StorageSequence) {}

absl::StatusOr<uint64_t> SequencePage::AtRest() const {
  const uint64_t found = user();
  if (found % 2 == 0) return found;
  return absl::FailedPreconditionError(
      absl::StrCat(storage_, " is in use by a process that has its memory: expected an even ",
                   "sequence, found ", found, "; wait for its streams before an operation"));
}

absl::Status SequencePage::CheckStill(uint64_t user_at_rest) const {
  const uint64_t found = user();
  if (found == user_at_rest) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(
      storage_, " was used by a process that has its memory: expected its sequence to ", "stay ",
      user_at_rest, " during the operation, found ", found));
}

void SequencePage::Publish(uint64_t generation) {
  words_->generation.store(generation, std::memory_order_release);
}

// Acquire: what was written before the user came to rest is seen by what reads it next.
uint64_t SequencePage::user() const { return words_->user.load(std::memory_order_acquire); }

}  // namespace crossmesh
