#include "common/base/allocator.h"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <jemalloc/jemalloc.h>
#include <malloc.h>
#include <unistd.h>

// Null where another allocator is linked.
#pragma weak mallctl

// What jemalloc reads of a program when it starts: one arena for each processor, instead of four.
// What is kept of freed memory is kept by arena, and only threads of that arena get it.
const char* malloc_conf = "narenas_ratio:1";

namespace crossmesh {
namespace {

constexpr int64_t kKeptBytesMax = int64_t{512} << 20;
constexpr absl::Duration kKeptFor = absl::Minutes(30);

bool HasJemalloc() { return &mallctl != nullptr; }

// Of a setting or figure that jemalloc has by this name.
template <typename T>
std::optional<T> Read(const std::string& name) {
  T value{};
  size_t size = sizeof(value);
  if (mallctl(name.c_str(), &value, &size, nullptr, 0) != 0) return std::nullopt;
  return value;
}

template <typename T>
void Write(const std::string& name, T value) {
  mallctl(name.c_str(), nullptr, nullptr, &value, sizeof(value));
}

std::string OfAllArenas(absl::string_view group, absl::string_view name) {
  return absl::StrCat(group, MALLCTL_ARENAS_ALL, name);
}

int64_t ResidentBytes() {
  int64_t mapped_pages = 0;
  int64_t resident_pages = 0;
  std::ifstream("/proc/self/statm") >> mapped_pages >> resident_pages;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

bool IsMoreThanIsKept() {
  const int64_t resident = ResidentBytes();
  return resident > kKeptBytesMax && resident > AllocatedBytes() + kKeptBytesMax;
}

}  // namespace

int64_t AllocatedBytes() {
  if (!HasJemalloc()) {
    const struct mallinfo2 figures = mallinfo2();
    return static_cast<int64_t>(figures.uordblks + figures.hblkhd);
  }
  Write("epoch", uint64_t{1});  // figures are of the time of this
  const size_t with_cached = Read<size_t>("stats.allocated").value_or(0);
  // What threads have freed and keep for themselves counts as allocated.
  const size_t cached = Read<size_t>(OfAllArenas("stats.arenas.", ".tcache_bytes")).value_or(0);
  return static_cast<int64_t>(with_cached - cached);
}

void KeepFreedMemory() {
  if (!HasJemalloc()) return;
  // Else pages that were freed go back after ten seconds, and those of large arrays at once. First
  // of arenas that there will be, then of those that there are.
  constexpr ssize_t kForever = -1;
  Write("arenas.dirty_decay_ms", kForever);
  const unsigned arenas = Read<unsigned>("arenas.narenas").value_or(0);
  for (unsigned i = 0; i < arenas; ++i) {
    Write(absl::StrCat("arena.", i, ".dirty_decay_ms"), kForever);
  }
}

void FreedMemory::GiveBack(absl::Duration now) {
  if (!HasJemalloc()) return;
  if (!given_back_.has_value()) given_back_ = now;
  if (now - *given_back_ < kKeptFor && !IsMoreThanIsKept()) return;
  given_back_ = now;
  mallctl(OfAllArenas("arena.", ".purge").c_str(), nullptr, nullptr, nullptr, 0);
}

}  // namespace crossmesh
