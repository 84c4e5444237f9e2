// Datagrams of the memory protocol, from a client or a worker that is not ours, and the list of
// pieces in a file that comes along.

#include "common/base/check.h"
#include "common/memory_protocol/memory_protocol.h"
#include "common/memory_protocol/piece_list.h"
#include "tests/fuzz/fuzz_input.h"

#include <cstdint>
#include <string>
#include <vector>

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

void CheckPieceList(absl::string_view text) {
  const absl::StatusOr<PieceList> list = DecodePieceList(text);
  if (!list.ok()) return;
  const absl::StatusOr<PieceList> again = DecodePieceList(Encode(*list));
  CHECK_OK(again);
  CHECK(*again == *list);
  // Pieces that pass lie within what there is.
  constexpr int64_t kBytes = 1 << 20;
  const std::vector<int64_t> allocations(list->allocations.size(), kBytes);
  if (!CheckPieces(*list, kBytes, allocations).ok()) return;
  int64_t end = 0;
  for (const MemoryPiece& piece : list->pieces) {
    CHECK_LE(end, piece.offset);
    end = piece.end();
    CHECK_LE(piece.allocation_offset + piece.bytes, kBytes);
  }
  CHECK_LE(end, kBytes);
}

}  // namespace

void FuzzOne(const uint8_t* data, size_t size) {
  CheckRequest(TextOf(data, size));
  CheckReply(TextOf(data, size));
  CheckPieceList(TextOf(data, size));
}

}  // namespace crossmesh
