// The address blob of a striped transport: what is decoded encodes to the same bytes. What stands
// before the checksum, which a fuzzer cannot find by itself, is also tried with the right one.

#include "common/base/check.h"
#include "tests/fuzz/fuzz_input.h"
#include "worker/transport/striped/striped_address.h"

#include <string>

#include <xxhash.h>

namespace crossmesh {
namespace {

void FuzzBytes(absl::string_view bytes) {
  const absl::StatusOr<StripedAddress> address = StripedAddress::Decode(bytes);
  if (!address.ok()) return;
  const absl::StatusOr<std::string> again = address->Encode();
  CHECK_OK(again);
  CHECK(*again == bytes);
}

}  // namespace

void FuzzOne(const uint8_t* data, size_t size) {
  const absl::string_view bytes = TextOf(data, size);
  FuzzBytes(bytes);
  std::string sealed = "XMESHNIC\1";
  sealed.append(bytes.begin(), bytes.end());
  const uint64_t checksum = XXH3_64bits(sealed.data(), sealed.size());
  for (int i = 0; i < 8; ++i) sealed += static_cast<char>(checksum >> (8 * i));
  FuzzBytes(sealed);
}

}  // namespace crossmesh
