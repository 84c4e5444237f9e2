#include "controller/store/sqlite/store_head.h"

#include <array>
#include <string>
#include <utility>

namespace crossmesh {
namespace {

template <typename... Numbers>
std::string BytesOf(Numbers... numbers) {
  const std::array<uint64_t, sizeof...(Numbers)> words = {static_cast<uint64_t>(numbers)...};
  return std::string(reinterpret_cast<const char*>(words.data()), sizeof(words));  // NOLINT
}

}  // namespace

int64_t StoreHead::Checksum() const {
  return ValueChecksum(BytesOf(revision, epoch, next_id, row_count, row_sum, chain.high, chain.low,
                               floor, floor_chain.high, floor_chain.low));
}

void StoreHead::Extend(std::span<const int64_t> row_checksums) {
  chain = NextChain(chain, ++revision, row_checksums);
}

Digest NextChain(const Digest& chain, int64_t revision, std::span<const int64_t> row_checksums) {
  std::string bytes = BytesOf(chain.high, chain.low, revision, row_checksums.size());
  for (const int64_t checksum : row_checksums) bytes += BytesOf(checksum);
  return Digest::Of(absl::string_view(bytes));
}

int64_t VersionHeader::Checksum() const {
  std::string bytes = BytesOf(id, revision, value_bytes, value_checksum);
  bytes.append(key.data(), key.size());
  return ValueChecksum(bytes);
}

int64_t ValueChecksum(absl::string_view value) {
  return static_cast<int64_t>(Digest::Of(value).low);
}

}  // namespace crossmesh
