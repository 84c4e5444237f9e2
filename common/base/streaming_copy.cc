#include "common/base/streaming_copy.h"

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace crossmesh {

#if defined(__SSE2__)
namespace {

constexpr int64_t kStreamingMin = int64_t{1} << 10;
constexpr int64_t kStreamedLineBytes = 64;

// `to` must be at the start of a cache line.
void CopyLine(std::byte* to, const std::byte* from) {
  constexpr int kParts = kStreamedLineBytes / sizeof(__m128i);
  const auto* const source = reinterpret_cast<const __m128i*>(from);
  auto* const destination = reinterpret_cast<__m128i*>(to);
  __m128i parts[kParts];
  for (int i = 0; i < kParts; ++i) parts[i] = _mm_loadu_si128(source + i);
  for (int i = 0; i < kParts; ++i) _mm_stream_si128(destination + i, parts[i]);
}

}  // namespace

void CopyStreaming(std::byte* to, const std::byte* from, int64_t bytes) {
  int64_t done = 0;
  if (bytes >= kStreamingMin) {
    const auto behind_line =
        static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kStreamedLineBytes);
    done = (kStreamedLineBytes - behind_line) % kStreamedLineBytes;
    std::memcpy(to, from, done);
    for (; bytes - done >= kStreamedLineBytes; done += kStreamedLineBytes)
      CopyLine(to + done, from + done);
  }
  std::memcpy(to + done, from + done, bytes - done);
}

void FinishStreaming() { _mm_sfence(); }

#else

void CopyStreaming(std::byte* to, const std::byte* from, int64_t bytes) {
  std::memcpy(to, from, bytes);
}

void FinishStreaming() {}

#endif

}  // namespace crossmesh
