#pragma once

#include "common/memory_protocol/storage_sequence.h"
#include "worker/memory/arena.h"

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// The worker's side of a StorageSequence. What the other side writes is believed as far as it goes:
// a user that lies spoils its own bytes. Thread-safe.
class SequencePage {
 public:
  // `storage` is for messages and readers of /proc. As Arena::Create.
  static absl::StatusOr<std::shared_ptr<SequencePage>> Create(std::string storage,
                                                              uint64_t generation);
  ~SequencePage() { Publish(0); }
  SequencePage(const SequencePage&) = delete;
  SequencePage& operator=(const SequencePage&) = delete;

  // To be handed out; kSequencePageBytes.
  const std::shared_ptr<Arena>& arena() const { return arena_; }
  // The user's word; FailedPrecondition while it is odd.
  absl::StatusOr<uint64_t> AtRest() const;
  // Aborted unless the user's word is what AtRest has told.
  absl::Status CheckStill(uint64_t user_at_rest) const;
  void Publish(uint64_t generation);

 private:
  SequencePage(std::string storage, std::shared_ptr<Arena> arena);

  uint64_t user() const;

  const std::string storage_;
  const std::shared_ptr<Arena> arena_;
  StorageSequence* const words_;
};

}  // namespace crossmesh
