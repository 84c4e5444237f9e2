#include "worker/memory/sequence_page.h"
#include "worker/memory/storage_table.h"

#include <utility>

namespace crossmesh {

StorageTable::Lease& StorageTable::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  End();
  table_ = std::exchange(other.table_, nullptr);
  key_ = std::move(other.key_);
  arena_ = std::move(other.arena_);
  use_ = other.use_;
  state_unwritten_ = other.state_unwritten_;
  sequence_ = std::move(other.sequence_);
  user_at_rest_ = other.user_at_rest_;
  return *this;
}

absl::Status StorageTable::Lease::CheckUndisturbed() const {
  return sequence_ == nullptr ? absl::OkStatus() : sequence_->CheckStill(user_at_rest_);
}

void StorageTable::Lease::End() {
  if (table_ == nullptr) return;
  table_->Release(*this);
  table_ = nullptr;
}

}  // namespace crossmesh
