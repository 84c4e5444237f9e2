#include "worker/transport/message_pool.h"

#include "common/base/check.h"

#include <new>
#include <utility>

namespace crossmesh {

MessagePool::~MessagePool() {
  while (spare_ != nullptr) ::operator delete(std::exchange(spare_, spare_->next));
}

void* MessagePool::Take(size_t bytes) {
  if (bytes_ == 0) bytes_ = bytes;
  CHECK_EQ(bytes, bytes_) << "messages of one pool have one size";
  if (spare_ == nullptr) {
    return new (::operator new(sizeof(Block) + bytes)) Block{.pool = this} + 1;
  }
  --spares_;
  return std::exchange(spare_, spare_->next) + 1;
}

void MessagePool::Give(void* message) {
  Block* const block = static_cast<Block*>(message) - 1;
  MessagePool& pool = *block->pool;
  if (pool.spares_ == kSpareMax) return ::operator delete(block);
  ++pool.spares_;
  block->next = std::exchange(pool.spare_, block);
}

}  // namespace crossmesh
