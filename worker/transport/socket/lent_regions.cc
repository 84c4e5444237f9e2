#include "worker/transport/socket/lent_regions.h"

#include "common/base/check.h"

#include <algorithm>
#include <cerrno>

#include <sys/stat.h>

namespace crossmesh {
namespace {

const std::byte* BeginOf(const LentRegion& region) { return region.bytes.data(); }

}  // namespace

void LentRegions::Add(const LentMemory& memory) {
  struct stat found;
  CHECK_EQ(fstat(memory.fd, &found), 0) << "errno " << errno;
  const auto place =
      std::ranges::upper_bound(regions_, memory.bytes.data(), std::less<>(), BeginOf);
  regions_.insert(place, {.id = ++last_id_,
                          .bytes = memory.bytes,
                          .file = {.bytes = static_cast<uint64_t>(found.st_size),
                                   .inode = found.st_ino,
                                   .fd = static_cast<uint32_t>(memory.fd)}});
}

std::optional<uint64_t> LentRegions::Remove(std::span<const std::byte> memory) {
  const auto found = std::ranges::find(regions_, memory.data(), BeginOf);
  if (found == regions_.end()) return std::nullopt;
  const uint64_t id = found->id;
  regions_.erase(found);
  return id;
}

const LentRegion* LentRegions::Find(Pieces pieces) const {
  const auto* first = static_cast<const std::byte*>(pieces.front().iov_base);
  // Regions ascend and are apart: only the last one that begins at or before the piece can have it.
  const auto after = std::ranges::upper_bound(regions_, first, std::less<>(), BeginOf);
  if (after == regions_.begin()) return nullptr;
  const LentRegion& region = *std::prev(after);
  const std::byte* const end = region.bytes.data() + region.bytes.size();
  const bool all = std::ranges::all_of(pieces, [&](const iovec& piece) {
    const auto* begin = static_cast<const std::byte*>(piece.iov_base);
    return begin >= region.bytes.data() && begin < end &&
           piece.iov_len <= static_cast<size_t>(end - begin);
  });
  return all ? &region : nullptr;
}

}  // namespace crossmesh
