#include "worker/probe/probe_protocol.h"

#include "common/base/little_endian.h"

#include <algorithm>
#include <string>

#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

constexpr size_t kWordBytes = 8;

}  // namespace

std::array<char, ProbeReport::kBytes> ProbeReport::Encode() const {
  const std::string words = ToLittleEndian(static_cast<uint64_t>(received_bytes), kWordBytes) +
                            ToLittleEndian(static_cast<uint64_t>(bytes_per_second), kWordBytes);
  std::array<char, kBytes> bytes = {};
  std::ranges::copy(words, bytes.begin());
  return bytes;
}

ProbeReport ProbeReport::Decode(std::span<const char, kBytes> bytes) {
  const absl::string_view words(bytes.data(), bytes.size());
  return {.received_bytes = static_cast<int64_t>(FromLittleEndian(words.substr(0, kWordBytes))),
          .bytes_per_second = static_cast<int64_t>(FromLittleEndian(words.substr(kWordBytes)))};
}

}  // namespace crossmesh
