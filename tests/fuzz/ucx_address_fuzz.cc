// The address blob of a UCX transport: what is decoded encodes to the same value, and what is
// encoded decodes, which its checksum keeps a fuzzer from finding by itself.

#include "common/base/check.h"
#include "tests/fuzz/fuzz_input.h"
#include "worker/transport/boot_id.h"
#include "worker/transport/ucx/ucx_address.h"

#include <string>

namespace crossmesh {
namespace {

void CheckSurvives(const UcxAddress& address) {
  const absl::StatusOr<UcxAddress> again = UcxAddress::Decode(address.Encode());
  CHECK_OK(again);
  CHECK(*again == address);
}

}  // namespace

void FuzzOne(const uint8_t* data, size_t size) {
  const absl::string_view bytes = TextOf(data, size);
  if (const auto address = UcxAddress::Decode(bytes); address.ok()) CheckSurvives(*address);
  if (size <= kBootIdBytes) return;
  CheckSurvives({.shared_memory = size % 2 == 0,
                 .boot_id = std::string(bytes.substr(0, kBootIdBytes)),
                 .worker_address = std::string(bytes.substr(kBootIdBytes))});
}

}  // namespace crossmesh
