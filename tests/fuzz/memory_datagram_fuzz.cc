// Datagrams of the memory protocol, from a client or a worker that is not ours.

#include "common/base/check.h"
#include "common/memory_protocol/memory_protocol.h"
#include "tests/fuzz/fuzz_input.h"

#include <string>

namespace crossmesh {
namespace {

void CheckRequest(absl::string_view datagram) {
  const absl::StatusOr<MemoryRequest> request = DecodeMemoryRequest(datagram);
  if (!request.ok()) return;
  const absl::StatusOr<MemoryRequest> again = DecodeMemoryRequest(Encode(*request));
  CHECK_OK(again);
  CHECK(*again == *request);
}

// Encode cuts what does not fit in a datagram, so equality holds for what was encoded once.
void CheckReply(absl::string_view datagram) {
  const absl::StatusOr<MemoryReply> reply = DecodeMemoryReply(datagram);
  if (!reply.ok()) return;
  const std::string encoded = Encode(*reply);
  CHECK_LE(std::ssize(encoded), kMemoryDatagramBytesMax);
  const absl::StatusOr<MemoryReply> again = DecodeMemoryReply(encoded);
  CHECK_OK(again);
  CHECK_EQ(Encode(*again), encoded);
  CHECK_EQ(again->status.code(), reply->status.code());
  CHECK_LE(again->storages.size(), reply->storages.size());
  CHECK(again->complete == (reply->complete && again->storages.size() == reply->storages.size()));
}

}  // namespace

void FuzzOne(const uint8_t* data, size_t size) {
  CheckRequest(TextOf(data, size));
  CheckReply(TextOf(data, size));
}

}  // namespace crossmesh
