#pragma once

#include "common/base/byte_count.h"

#include <cstdint>
#include <iterator>

#include <absl/strings/string_view.h>

namespace crossmesh {

// How much memory decoding these bytes of a message takes, at most nearly: a number of one byte is
// one of eight in the message that is decoded, and again in what is made of it.
inline ByteCount DecodedBytes(absl::string_view bytes) {
  constexpr int64_t kGrowth = 16;
  return ByteCount(kGrowth * std::ssize(bytes));
}

}  // namespace crossmesh
