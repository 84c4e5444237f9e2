// The address blob of a socket transport: what is decoded encodes to the same value, and what is
// encoded decodes, which its checksum keeps a fuzzer from finding by itself.

#include "common/base/check.h"
#include "tests/fuzz/fuzz_input.h"
#include "worker/transport/socket/socket_address.h"

#include <string>

namespace crossmesh {
namespace {

void CheckSurvives(const SocketAddress& address) {
  const absl::StatusOr<SocketAddress> again = SocketAddress::Decode(address.Encode());
  CHECK_OK(again);
  CHECK(*again == address);
  CHECK(!address.endpoint.ToString().empty());
}

}  // namespace

void FuzzOne(const uint8_t* data, size_t size) {
  if (const auto address = SocketAddress::Decode(TextOf(data, size)); address.ok()) {
    CheckSurvives(*address);
  }
  FuzzInput input({data, size});
  SocketAddress address = {.shared_memory = input.Byte() % 2 == 0,
                           .nonce_file = {.pid = static_cast<uint32_t>(input.Number(4)),
                                          .fd = static_cast<uint32_t>(input.Number(4))}};
  for (char& byte : address.nonce) byte = static_cast<char>(input.Byte());
  for (char& byte : address.endpoint.ip) byte = static_cast<char>(input.Byte());
  address.endpoint.port = static_cast<uint16_t>(input.Number(2));
  CheckSurvives(address);
}

}  // namespace crossmesh
