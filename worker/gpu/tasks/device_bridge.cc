#include "worker/gpu/tasks/device_bridge.h"

#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/wire/time_codec.h"
#include "worker/gpu/protocol/gpu_message.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <absl/strings/str_cat.h>
#include <fcntl.h>

namespace crossmesh {
namespace {

// In order, and those that touch as one, as the process of the GPU wants them.
std::vector<TileRange> Joined(std::vector<TileRange> ranges) {
  std::ranges::sort(ranges, {}, &TileRange::offset);
  std::vector<TileRange> joined;
  for (const TileRange& range : ranges) {
    if (joined.empty() || joined.back().end() < range.offset) {
      joined.push_back(range);
    } else {
      joined.back().bytes = std::max(joined.back().end(), range.end()) - joined.back().offset;
    }
  }
  return joined;
}

}  // namespace

absl::StatusOr<DeviceBridge::BounceBuffer*> DeviceBridge::BounceBufferOf(
    const StorageArenas::Found& found, MakeBounceBuffer make_bounce_buffer) {
  // Tiles of one arena share a buffer of the same layout, so that offsets are the same in both.
  const auto known = std::ranges::find(bounce_buffers_, found.first, &BounceBuffer::first);
  if (known != bounce_buffers_.end()) return &*known;
  absl::StatusOr<std::shared_ptr<Arena>> arena = make_bounce_buffer(found.bytes);
  if (!arena.ok()) {
    return absl::Status(arena.status().code(),
                        absl::StrCat(name(), ": ", arena.status().message()));
  }
  return &bounce_buffers_.emplace_back(
      BounceBuffer{.first = found.first, .memory = found.memory, .arena = *std::move(arena)});
}

absl::StatusOr<BoundTiles> DeviceBridge::BounceBufferTiles(Side side, const BoundTiles& tiles,
                                                           const TileMap& map,
                                                           MakeBounceBuffer make_bounce_buffer) {
  if (side == Side::kSource) sources_ = tiles;
  const std::vector<int32_t>& groups = map.tensors().group_of_tensor();
  BoundTiles bounced;
  bounced.tensor.resize(tiles.tensor.size());
  for (size_t tensor = 0; tensor < tiles.tensor.size(); ++tensor) {
    const std::byte* const tile = tiles.tensor[tensor];
    const int64_t bytes = groups[tensor] < 0 ? 0 : map.tile_bytes(groups[tensor]);
    if (tile == nullptr || bytes == 0) continue;
    ASSIGN_OR_RETURN(const StorageArenas::Found found, gpu_.arenas().Find(tile));
    RETURN_IF_ERROR(StorageArenas::CheckHolds(found, ByteCount(bytes)));
    ASSIGN_OR_RETURN(BounceBuffer* const bounce_buffer, BounceBufferOf(found, make_bounce_buffer));
    bounced.tensor[tensor] = bounce_buffer->arena->bytes().data() + found.place.offset;
    const TileRange range = {.offset = found.place.offset, .bytes = bytes};
    if (side == Side::kSource) {
      bounce_buffer->loaded.push_back(range);
    } else if (options_.overwrites_sources || tensor >= sources_.tensor.size() ||
               sources_.tensor[tensor] != tile) {
      bounce_buffer->stored.push_back(range);
    }
  }
  return bounced;
}

void DeviceBridge::Load(Done done) {
  done_ = std::move(done);
  AwaitMemory();
}

void DeviceBridge::AwaitMemory() {
  // Waits for one at a time: when that is made, this looks through all of them again.
  for (const BounceBuffer& bounce_buffer : bounce_buffers_) {
    const absl::StatusOr<bool> is_made = bounce_buffer.memory->is_made();
    if (!is_made.ok()) return std::exchange(done_, nullptr)(is_made.status());
    if (*is_made) continue;
    bounce_buffer.memory->WhenMade([this](const DeviceMemory::Made& /*made*/) { AwaitMemory(); });
    return;
  }
  CopyAll(v1::GpuRequest::CopyTiles::DIRECTION_LOAD);
}

void DeviceBridge::Store(Done done) {
  done_ = std::move(done);
  CopyAll(v1::GpuRequest::CopyTiles::DIRECTION_STORE);
}

void DeviceBridge::CopyAll(Direction direction) {
  status_ = cancelled_;
  open_ = 1;  // until all have begun
  for (const BounceBuffer& bounce_buffer : bounce_buffers_) {
    const std::vector<TileRange>& ranges = direction == v1::GpuRequest::CopyTiles::DIRECTION_LOAD
                                               ? bounce_buffer.loaded
                                               : bounce_buffer.stored;
    if (ranges.empty() || !status_.ok()) continue;
    status_ = Copy(bounce_buffer, direction, Joined(ranges));
  }
  CloseOne(absl::OkStatus());
}

absl::Status DeviceBridge::Copy(const BounceBuffer& bounce_buffer, Direction direction,
                                const std::vector<TileRange>& ranges) {
  // Found anew, since the arena had no id while its memory was being made.
  ASSIGN_OR_RETURN(const StorageArenas::Found found, gpu_.arenas().Find(bounce_buffer.first));
  UniqueFd descriptor(fcntl(bounce_buffer.arena->fd(), F_DUPFD_CLOEXEC, 0));
  if (!descriptor.valid()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a descriptor of the bounce buffer: ", absl::ErrnoToStatus(errno, "fcntl").message()));
  }
  ++open_;
  has_copied_ = true;
  v1::GpuRequest request;
  v1::GpuRequest::CopyTiles& copy = *request.mutable_copy_tiles();
  *copy.mutable_key() = ToProto(options_.key);
  copy.set_direction(direction);
  copy.set_arena(found.place.arena.value());
  for (const TileRange& range : ranges) {
    v1::GpuRequest::CopyTiles::Range& added = *copy.add_ranges();
    added.set_offset_bytes(range.offset);
    added.set_size_bytes(range.bytes);
  }
  copy.set_checksums(options_.checksums);
  *copy.mutable_deadline() = ToProto(options_.deadline);
  const auto done = [this](const absl::StatusOr<GpuProcess::Reply>& reply) {
    CloseOne(reply.status());
  };
  gpu_.process().Call(std::move(request), std::move(descriptor), {.done = done});
  return absl::OkStatus();
}

void DeviceBridge::CloseOne(const absl::Status& status) {
  status_.Update(status);
  if (--open_ > 0) return;
  std::exchange(done_, nullptr)(status_);
}

void DeviceBridge::Release() {
  if (!has_copied_) return bounce_buffers_.clear();
  v1::GpuRequest request;
  *request.mutable_release_bounce_buffers()->mutable_key() = ToProto(options_.key);
  // A process that is lost has nothing of them any more.
  gpu_.process().Call(std::move(request), UniqueFd(),
                      {.done = [kept = std::exchange(bounce_buffers_, {})](
                                   const absl::StatusOr<GpuProcess::Reply>& /*reply*/) {}});
}

void DeviceBridge::Cancel(const absl::Status& why) {
  if (!cancelled_.ok()) return;
  cancelled_ = why;
  // Nothing is under way in the process; the next CopyAll ends with the cause.
  if (open_ == 0) return;
  gpu_.CancelTask(options_.key, why);
}

}  // namespace crossmesh
