// The payload of a failure that a peer sends: never success, always text that can go on in a
// report, and the same when it is passed on.

#include "common/base/check.h"
#include "common/mesh/utf8.h"
#include "tests/fuzz/fuzz_input.h"
#include "worker/executor/wire_message.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace crossmesh {

void FuzzOne(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, std::min(size, size_t{kFailureBytesMax})));
  const absl::Status failure = DecodeFailure(bytes);
  CHECK(!failure.ok());
  CHECK(IsValidUtf8(failure.message()));
  std::array<std::byte, kFailureBytesMax> encoded;
  const size_t used = EncodeFailure(failure, encoded);
  CHECK(DecodeFailure(std::span(encoded).first(used)) == failure);
}

}  // namespace crossmesh
