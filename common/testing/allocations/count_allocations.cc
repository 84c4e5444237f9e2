#include "common/testing/allocations/count_allocations.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

#include <malloc.h>

namespace crossmesh {
namespace {

struct Counting {
  bool is_on = false;
  bool (*is_ignored)() = nullptr;
  int64_t allocations = 0;
  int64_t kept_bytes = 0;
};

thread_local Counting counting;

std::atomic<bool> all_count = false;
std::atomic<int64_t> allocations_of_all = 0;

}  // namespace

int64_t CountAllocations(absl::FunctionRef<void()> work, bool (*is_ignored)()) {
  counting = {.is_on = true, .is_ignored = is_ignored};
  work();
  counting.is_on = false;
  return counting.allocations;
}

int64_t CountAllocationsOfAllThreads(absl::FunctionRef<void()> work) {
  allocations_of_all = 0;
  all_count = true;
  work();
  all_count = false;
  return allocations_of_all;
}

int64_t CountKeptBytes(absl::FunctionRef<void()> work) {
  counting = {.is_on = true};
  work();
  counting.is_on = false;
  return counting.kept_bytes;
}

namespace {

int64_t BytesOf(void* memory) { return static_cast<int64_t>(malloc_usable_size(memory)); }

void* Allocate(size_t size) {
  if (all_count.load(std::memory_order_relaxed)) ++allocations_of_all;
  // Off, since the answer to what is ignored may allocate.
  if (std::exchange(counting.is_on, false)) {
    if (counting.is_ignored == nullptr || !counting.is_ignored()) ++counting.allocations;
    counting.is_on = true;
  }
  void* memory = std::malloc(size);
  if (counting.is_on) counting.kept_bytes += BytesOf(memory);
  return memory;
}

void Free(void* memory) {
  if (counting.is_on && memory != nullptr) counting.kept_bytes -= BytesOf(memory);
  std::free(memory);
}

}  // namespace
}  // namespace crossmesh

void* operator new(size_t size) { return crossmesh::Allocate(size); }
void* operator new[](size_t size) { return crossmesh::Allocate(size); }
// jemalloc has these itself.
void* operator new(size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return crossmesh::Allocate(size);
}
void* operator new[](size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return crossmesh::Allocate(size);
}
void operator delete(void* memory) noexcept { crossmesh::Free(memory); }
void operator delete[](void* memory) noexcept { crossmesh::Free(memory); }
void operator delete(void* memory, size_t /*size*/) noexcept { crossmesh::Free(memory); }
void operator delete[](void* memory, size_t /*size*/) noexcept { crossmesh::Free(memory); }
