#include "worker/arena_lender.h"

#include <utility>

namespace crossmesh {

void ArenaLender::Start(const Ports& ports) {
  ports_ = std::make_unique<const Ports>(ports);
  MutexLock lock(shared_->mutex);
  shared_->ports = ports_.get();
}

void ArenaLender::Stop() {
  MutexLock lock(shared_->mutex);
  shared_->ports = nullptr;
}

std::shared_ptr<Arena> ArenaLender::Lend(std::shared_ptr<Arena> arena) {
  MutexLock lock(shared_->mutex);
  if (shared_->ports == nullptr || arena->fd() < 0) return arena;
  shared_->ports->data.Post([arena, &transport = shared_->ports->transport] {
    transport.Lend({.bytes = arena->bytes(), .fd = arena->fd()});
  });
  Arena* const lent = arena.get();
  return {lent, [shared = shared_, arena = std::move(arena)](Arena* /*lent*/) mutable {
            Reclaim(*shared, std::move(arena));
          }};
}

void ArenaLender::Reclaim(Shared& shared, std::shared_ptr<Arena> arena) {
  MutexLock lock(shared.mutex);
  if (shared.ports == nullptr) return;
  shared.ports->data.Post([arena, &ports = *shared.ports]() mutable {
    ports.transport.Reclaim(arena->bytes());
    ports.memory.Post([arena = std::move(arena)] {});
  });
}

}  // namespace crossmesh
