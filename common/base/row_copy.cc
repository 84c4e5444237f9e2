#include "common/base/row_copy.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace crossmesh {

#if defined(__x86_64__)
namespace {

// Shorter strings take the processor longer to begin than to copy; with longer ones the C library
// does the same.
constexpr size_t kStringBytesMin = 1 << 10;
constexpr size_t kStringBytesMax = 4 << 10;

// The processor's "fast short repeat move" and "enhanced repeat move".
bool CopiesStringsFast() {
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned int kEnhanced = 1U << 9, kFastShort = 1U << 4;
  return (ebx & kEnhanced) != 0 && (edx & kFastShort) != 0;
}

}  // namespace

void CopyRow(std::byte* to, const std::byte* from, size_t bytes) {
  static const bool fast = CopiesStringsFast();
  if (!fast || bytes < kStringBytesMin || bytes >= kStringBytesMax) {
    std::memcpy(to, from, bytes);
    return;
  }
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

#else

void CopyRow(std::byte* to, const std::byte* from, size_t bytes) { std::memcpy(to, from, bytes); }

#endif

}  // namespace crossmesh
