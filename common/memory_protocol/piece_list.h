#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Bytes of a storage that lie in an allocation which a user process has lent.
struct MemoryPiece {
  int64_t offset = 0;      // in the storage
  int64_t bytes = 0;       // at least 1
  int64_t allocation = 0;  // its place in the list
  int64_t allocation_offset = 0;

  int64_t end() const { return offset + bytes; }
  friend bool operator==(const MemoryPiece&, const MemoryPiece&) = default;
};

// What a storage is bound to. As JSON, {"allocations": ["pool-0"], "pieces": [[0, 4096, 0, 512]]}
// and maybe "generations": [1]; too long for a datagram, since there is a piece for each tensor.
struct PieceList {
  static constexpr int64_t kPiecesMax = int64_t{1} << 20;
  static constexpr int64_t kFileBytesMax = int64_t{64} << 20;

  std::vector<std::string> allocations;    // names under which they were lent
  std::vector<uint64_t> generations = {};  // of these, each; none: whatever they are
  std::vector<MemoryPiece> pieces;         // ascending; what lies between them is nowhere
  friend bool operator==(const PieceList&, const PieceList&) = default;
};

std::string Encode(const PieceList& list);
// InvalidArgument, naming the field, for anything that Encode does not make.
absl::StatusOr<PieceList> DecodePieceList(absl::string_view text);

// InvalidArgument, naming the piece with what was expected and found, unless all pieces lie in a
// storage of `bytes`, in order and apart from each other, and in their allocations, of
// `allocation_bytes`, apart from each other as well. Cost: that of sorting them.
absl::Status CheckPieces(const PieceList& list, int64_t bytes,
                         const std::vector<int64_t>& allocation_bytes);

}  // namespace crossmesh
