#include "worker/probe/probe_protocol.h"

namespace crossmesh {
namespace {

constexpr size_t kWordBytes = 8;

void Put(uint64_t word, std::span<char, kWordBytes> out) {
  for (size_t i = 0; i < kWordBytes; ++i) out[i] = static_cast<char>(word >> (8 * i));
}

uint64_t Take(std::span<const char, kWordBytes> bytes) {
  uint64_t word = 0;
  for (size_t i = 0; i < kWordBytes; ++i) {
    word |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return word;
}

}  // namespace

std::array<char, ProbeReport::kBytes> ProbeReport::Encode() const {
  std::array<char, kBytes> bytes = {};
  const std::span<char, kBytes> out(bytes);
  Put(static_cast<uint64_t>(received_bytes), out.first<kWordBytes>());
  Put(static_cast<uint64_t>(bytes_per_second), out.last<kWordBytes>());
  return bytes;
}

ProbeReport ProbeReport::Decode(std::span<const char, kBytes> bytes) {
  return {.received_bytes = static_cast<int64_t>(Take(bytes.first<kWordBytes>())),
          .bytes_per_second = static_cast<int64_t>(Take(bytes.last<kWordBytes>()))};
}

}  // namespace crossmesh
