#include "worker/gpu/loop/tile_copies.h"

#include "common/base/status_macros.h"
#include "common/plan/plan.h"
#include "worker/executor/leaf_checksum.h"
#include "worker/gpu/executor/device_pointer.h"
#include "worker/gpu/protocol/gpu_message.h"

#include <algorithm>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

// What a batch's lists have, one after the other.
constexpr int64_t kBoxBytes = int64_t{TileCopies::kBatchPieces} * sizeof(KernelBox);
constexpr int64_t kSegmentBytes = int64_t{TileCopies::kBatchPieces} * sizeof(PackSegment);
// Each piece may end in a leaf that is not whole.
constexpr int64_t kBatchLeaves =
    Plan::LeavesOf(TileCopies::kWindowBytes) + int64_t{TileCopies::kBatchPieces};

}  // namespace

absl::StatusOr<std::unique_ptr<TileCopies>> TileCopies::Create(Gpu& gpu, const GpuArenas& arenas) {
  auto copies = absl::WrapUnique(new TileCopies(gpu, arenas));
  ASSIGN_OR_RETURN(copies->stream_, GpuStream::Create(gpu));
  return copies;
}

void TileCopies::Begin(const v1::GpuRequest::CopyTiles& request, UniqueFd file, Done done) {
  absl::StatusOr<Copy> copy = Read(request, std::move(file));
  if (!copy.ok()) return done(copy.status());
  copy->done = std::move(done);
  copies_.push_back(*std::move(copy));
}

absl::StatusOr<TileCopies::Copy> TileCopies::Read(const v1::GpuRequest::CopyTiles& request,
                                                  UniqueFd file) const {
  Copy copy = {.key = FromProto(request.key()),
               .is_load = request.direction() == v1::GpuRequest::CopyTiles::DIRECTION_LOAD,
               .checksums = request.checksums(),
               .file = std::move(file)};
  if (!copy.is_load && request.direction() != v1::GpuRequest::CopyTiles::DIRECTION_STORE) {
    return Malformed("copy_tiles.direction", "a load or a store",
                     absl::StrCat(static_cast<int>(request.direction())));
  }
  ASSIGN_OR_RETURN(copy.arena, ParseArena(request.arena()));
  ASSIGN_OR_RETURN(copy.ranges, RangesOf(request));
  ASSIGN_OR_RETURN(copy.memory, arenas_.Find(copy.arena));
  if (!copy.file.valid()) {
    return absl::InvalidArgumentError(
        absl::StrCat("copy of arena ", copy.arena.value(),
                     ": expected a descriptor of host memory, found none"));
  }
  const int64_t bytes = copy.memory->bytes().value();
  if (!copy.ranges.empty() && copy.ranges.back().end() > bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("copy of arena ", copy.arena.value(), ": expected ranges in its ", bytes,
                     " bytes, found one that ends at ", copy.ranges.back().end()));
  }
  return copy;
}

void TileCopies::Cancel(const TaskKey& key, const absl::Status& why) {
  for (Copy& copy : copies_) {
    if (copy.key == key) copy.failure.Update(why);
  }
}

absl::Status TileCopies::Poll() {
  while (!copies_.empty()) {
    EndThoseWaiting();
    Copy& copy = copies_.front();
    RETURN_IF_ERROR(TakeDone(copy));
    while (copy.failure.ok() && !copy.is_queued() && queued_.size() < kBatchesQueued) {
      RETURN_IF_ERROR(QueueBatch(copy));
    }
    if (!queued_.empty()) break;
    copy.done(copy.failure);
    copies_.pop_front();
  }
  return absl::OkStatus();
}

// Without the first one, of which batches may be on the stream.
void TileCopies::EndThoseWaiting() {
  for (auto it = std::next(copies_.begin()); it != copies_.end();) {
    if (it->failure.ok()) {
      ++it;
      continue;
    }
    it->done(it->failure);
    it = copies_.erase(it);
  }
}

absl::Status TileCopies::TakeDone(Copy& copy) {
  while (!queued_.empty()) {
    Batch& batch = queued_.front();
    ASSIGN_OR_RETURN(const bool is_done, batch.done->IsDone());
    if (!is_done) break;
    // What has failed half-way is not compared.
    if (copy.failure.ok() && copy.checksums) copy.failure = CompareHashes(copy, batch);
    batch.window = nullptr;
    spare_.push_back(std::move(batch));
    queued_.pop_front();
  }
  return absl::OkStatus();
}

absl::Status TileCopies::QueueBatch(Copy& copy) {
  absl::StatusOr<Batch> batch = TakeBatch();
  if (!batch.ok()) {
    copy.failure = batch.status();
    return absl::OkStatus();
  }
  copy.failure = QueuePieces(copy, *batch);
  // After an error, too: the pieces before it are on the stream, and their window must stay.
  RETURN_IF_ERROR(batch->done->Record(*stream_));
  queued_.push_back(*std::move(batch));
  return absl::OkStatus();
}

absl::StatusOr<TileCopies::Batch> TileCopies::TakeBatch() {
  Batch batch;
  if (!spare_.empty()) {
    batch = std::move(spare_.back());
    spare_.pop_back();
    return batch;
  }
  constexpr int64_t kHashBytes = kBatchLeaves * int64_t{sizeof(uint64_t)};
  ASSIGN_OR_RETURN(batch.lists, RegisteredMemory::Create(
                                    gpu_, ByteCount(kBoxBytes + kSegmentBytes + kHashBytes)));
  ASSIGN_OR_RETURN(batch.done, GpuEvent::Create(gpu_));
  return batch;
}

absl::Status TileCopies::QueuePieces(Copy& copy, Batch& batch) {
  RETURN_IF_ERROR(MoveWindow(copy));
  batch.window = copy.window;
  batch.pieces.clear();
  while (batch.pieces.size() < kBatchPieces && !copy.is_queued() &&
         copy.next_offset() < copy.window->end()) {
    const Piece& piece = batch.pieces.emplace_back(TakePiece(copy));
    RETURN_IF_ERROR(QueueCopy(copy, piece));
  }
  return copy.checksums ? QueueHashes(copy, batch) : absl::OkStatus();
}

absl::Status TileCopies::MoveWindow(Copy& copy) {
  const int64_t begin = copy.next_offset() / kWindowBytes * kWindowBytes;
  if (copy.window != nullptr && copy.window->begin == begin) return absl::OkStatus();
  // Batches on the stream keep the old one; it is registered until the last of them is done.
  copy.window = nullptr;
  const int64_t end = std::min(begin + kWindowBytes, copy.ranges.back().end());
  ASSIGN_OR_RETURN(std::unique_ptr<RegisteredMemory> memory,
                   RegisteredMemory::Map(gpu_, copy.file.get(), begin, ByteCount(end - begin)));
  copy.window = std::make_shared<const Window>(Window{.begin = begin, .memory = std::move(memory)});
  return absl::OkStatus();
}

TileCopies::Piece TileCopies::TakePiece(Copy& copy) {
  const Piece& range = copy.ranges[copy.range];
  const int64_t offset = copy.next_offset();
  const int64_t end = std::min(range.end(), copy.window->end());
  copy.range_queued += end - offset;
  if (end == range.end()) {
    ++copy.range;
    copy.range_queued = 0;
  }
  return {.offset = offset, .bytes = end - offset};
}

absl::Status TileCopies::QueueCopy(const Copy& copy, const Piece& piece) {
  RegisteredMemory& memory = *copy.window->memory;
  const std::span<std::byte> on_host = copy.window->bytes(piece);
  const uint64_t on_gpu = copy.memory->address() + piece.offset;
  return copy.is_load ? memory.CopyFromGpu(on_gpu, on_host, *stream_)
                      : memory.CopyToGpu(on_host, on_gpu, *stream_);
}

absl::Status TileCopies::QueueHashes(const Copy& copy, const Batch& batch) {
  // After the copies on the same stream: hashed is what is then in the GPU's memory, the pack
  // kernel's way without a place for packed bytes.
  std::byte* const lists = batch.lists->bytes().data();
  auto* const boxes = reinterpret_cast<KernelBox*>(lists);
  auto* const segments = reinterpret_cast<PackSegment*>(lists + kBoxBytes);
  int32_t count = 0;
  int64_t leaves = 0;
  for (const Piece& piece : batch.pieces) {
    boxes[count] = {.address = copy.memory->address() + piece.offset,
                    .rows = 1,
                    .row_bytes = piece.bytes,
                    .pitch_bytes = piece.bytes};
    segments[count] = {.end = piece.bytes,
                       .first_hash = leaves,
                       .first_box = count,
                       .box_end = count + 1,
                       .first_block = static_cast<int32_t>(leaves)};
    leaves += Plan::LeavesOf(piece.bytes);
    ++count;
  }
  const uint64_t on_gpu = batch.lists->device_address();
  return gpu_.Launch(hash_, leaves,
                     {.boxes = DevicePointer<const KernelBox>(on_gpu),
                      .segments = DevicePointer<const PackSegment>(on_gpu + kBoxBytes),
                      .segment_count = count,
                      .leaf_hashes = DevicePointer<uint64_t>(on_gpu + kBoxBytes + kSegmentBytes)},
                     *stream_);
}

std::span<uint64_t> TileCopies::HashesOf(const Batch& batch) {
  return {reinterpret_cast<uint64_t*>(batch.lists->bytes().data() + kBoxBytes + kSegmentBytes),
          static_cast<size_t>(kBatchLeaves)};
}

absl::Status TileCopies::CompareHashes(const Copy& copy, const Batch& batch) {
  std::span<const uint64_t> on_gpu = HashesOf(batch);
  std::vector<uint64_t> on_host;
  for (const Piece& piece : batch.pieces) {
    on_host.resize(Plan::LeavesOf(piece.bytes));
    HashLeaves(batch.window->bytes(piece), on_host);
    const auto [host, gpu] = std::ranges::mismatch(on_host, on_gpu);
    if (host != on_host.end()) {
      const int64_t begin = piece.offset + (host - on_host.begin()) * Plan::kLeafBytes;
      return absl::DataLossError(absl::StrFormat(
          "copy of arena %d, bytes [%d, %d): expected the same hash on both sides, found %016x on "
          "the GPU and %016x on the host",
          copy.arena.value(), begin, std::min(begin + Plan::kLeafBytes, piece.end()), *gpu, *host));
    }
    on_gpu = on_gpu.subspan(on_host.size());
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
