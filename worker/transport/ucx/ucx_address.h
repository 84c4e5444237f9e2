#pragma once

#include <string>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What one UcxTransport hands to its peers. UCX itself trusts the bytes of a worker address and may
// crash on others, so they travel with a name, a version and a checksum. The checksum protects
// against mistakes, not attackers: addresses come over the authenticated control plane.
//
//   bytes   content
//   8       "XMESHUCX"
//   1       version, 1
//   1       1 if the transport uses shared memory inside a host, else 0
//   16      boot id of the host
//   8       XXH3-64 of all other bytes, little endian
//   rest    the worker address of UCX, at least one byte
struct UcxAddress {
  bool shared_memory = false;
  std::string boot_id;  // 16 bytes
  std::string worker_address;

  std::string Encode() const;

  // InvalidArgument: not an address of a UcxTransport, or one of another version.
  static absl::StatusOr<UcxAddress> Decode(absl::string_view bytes);

  friend bool operator==(const UcxAddress&, const UcxAddress&) = default;
};

}  // namespace crossmesh
