// What code needs to be compiled for both the GPU, by nvcc, and the host, by any compiler. Such
// code uses language and fixed-size integers only: the standard library has no device functions.

#pragma once

#include "common/numbers/device_function.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

// kernels.cu defines these for the GPU.

// Before a loop whose arrays are to be in registers.
#ifndef CROSSMESH_UNROLL
#define CROSSMESH_UNROLL
#endif

// Says that a pointer is not to what a block shares, which has instructions of its own.
#ifndef CROSSMESH_ASSUME_GLOBAL
#define CROSSMESH_ASSUME_GLOBAL(pointer)
#endif

namespace crossmesh {

// Not in ISO C++; every compiler that we use has it.
__extension__ using Uint128 = unsigned __int128;

// Which thread of which block this is: threadIdx.x and blockIdx.x.
struct KernelPlace {
  int32_t block = 0;
  int32_t thread = 0;
};

// Threads that go in step.
inline constexpr int kWarpThreads = 32;

template <typename T>
CROSSMESH_DEVICE constexpr T Min(T a, T b) {
  return b < a ? b : a;
}

template <typename T>
CROSSMESH_DEVICE constexpr T Max(T a, T b) {
  return a < b ? b : a;
}

// The index of the last of the items [first, end) whose `member` is at most `value`. It ascends
// from item to item, and the first one's is.
template <auto member, class Item, typename Value>
CROSSMESH_DEVICE constexpr int32_t FindLast(const Item* items, int32_t first, int32_t end,
                                            Value value) {
  while (end - first > 1) {
    const int32_t middle = first + (end - first) / 2;
    (items[middle].*member <= value ? first : end) = middle;
  }
  return first;
}

// The GPU's memory, whose addresses are numbers where plans are bound to them.
CROSSMESH_DEVICE inline std::byte* MemoryAt(uint64_t address) {
  auto* memory = reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
  CROSSMESH_ASSUME_GLOBAL(memory);
  return memory;
}

// One access to memory, at a multiple of the size of T.
template <typename T>
CROSSMESH_DEVICE inline T LoadAligned(uint64_t address) {
  T value;
  std::memcpy(&value, __builtin_assume_aligned(MemoryAt(address), sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
CROSSMESH_DEVICE inline void StoreAligned(uint64_t address, T value) {
  std::memcpy(__builtin_assume_aligned(MemoryAt(address), sizeof(T)), &value, sizeof(T));
}

}  // namespace crossmesh
