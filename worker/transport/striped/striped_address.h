#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What one StripedTransport hands to its peers: the addresses of its NICs' transports, in the order
// of the NICs. The checksum protects against mistakes, not attackers: addresses come over the
// authenticated control plane.
//
//   bytes   content
//   8       "XMESHNIC"
//   1       version, 1
//   1       how many addresses follow, 1 to 16; each is
//     2       its size, 1 or more
//     size    itself
//   8       XXH3-64 of all bytes before
//
// At most 4 KiB. Numbers are little endian.
struct StripedAddress {
  static constexpr size_t kNicsMax = 16;
  static constexpr size_t kBytesMax = 4096;

  std::vector<std::string> nics;

  // InvalidArgument: not 1 to kNicsMax addresses, an empty one, or too many bytes.
  absl::StatusOr<std::string> Encode() const;

  // InvalidArgument: not an address of a StripedTransport, or one of another version.
  static absl::StatusOr<StripedAddress> Decode(absl::string_view bytes);

  friend bool operator==(const StripedAddress&, const StripedAddress&) = default;
};

}  // namespace crossmesh
