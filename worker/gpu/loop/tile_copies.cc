#include "worker/gpu/loop/tile_copies.h"

#include "common/base/error_place.h"
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
    Plan::LeavesOf(BounceBuffer::kWindowBytes) + int64_t{TileCopies::kBatchPieces};
constexpr int64_t kHashBytes = kBatchLeaves * int64_t{sizeof(uint64_t)};

std::span<uint64_t> HashesOf(const RegisteredMemory& lists) {
  return {reinterpret_cast<uint64_t*>(lists.bytes().data() + kBoxBytes + kSegmentBytes),
          static_cast<size_t>(kBatchLeaves)};
}

// What the host has in a batch's pieces, against what the GPU had.
absl::Status CompareHashes(ArenaId arena, std::span<const TileRange> pieces,
                           const BounceBuffer::Window& window, std::span<const uint64_t> on_gpu) {
  std::vector<uint64_t> on_host;
  for (const TileRange& piece : pieces) {
    on_host.resize(Plan::LeavesOf(piece.bytes));
    HashLeaves(window.bytes(piece), on_host);
    const auto [host, gpu] = std::ranges::mismatch(on_host, on_gpu);
    if (host != on_host.end()) {
      const int64_t begin = piece.offset + (host - on_host.begin()) * Plan::kLeafBytes;
      return absl::DataLossError(absl::StrFormat(
          "copy of arena %d, bytes [%d, %d): expected the same hash on both sides, found %016x on "
          "the GPU and %016x on the host",
          arena.value(), begin, std::min(begin + Plan::kLeafBytes, piece.end()), *gpu, *host));
    }
    on_gpu = on_gpu.subspan(on_host.size());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TileCopies>> TileCopies::Create(const Ports& ports) {
  auto copies = absl::WrapUnique(new TileCopies(ports));
  ASSIGN_OR_RETURN(copies->stream_, GpuStream::Create(ports.gpu));
  ASSIGN_OR_RETURN(copies->threads_, HostThreads::Create(ports.gpu, ports.loop, kHostThreads));
  return copies;
}

void TileCopies::Begin(const v1::GpuRequest::CopyTiles& request, UniqueFd descriptor, Done done) {
  absl::StatusOr<Copy> copy = Read(request);
  if (!copy.ok()) return done(copy.status());
  if (const absl::Status opened = OpenBounceBuffer(*copy, std::move(descriptor)); !opened.ok()) {
    return done(At(absl::StrCat("copy of arena ", copy->arena.value()), opened));
  }
  copy->done = std::move(done);
  copies_.push_back(*std::move(copy));
  RequestLook();
}

absl::StatusOr<TileCopies::Copy> TileCopies::Read(const v1::GpuRequest::CopyTiles& request) const {
  Copy copy = {.key = FromProto(request.key()),
               .is_load = request.direction() == v1::GpuRequest::CopyTiles::DIRECTION_LOAD,
               .checksums = request.checksums()};
  if (!copy.is_load && request.direction() != v1::GpuRequest::CopyTiles::DIRECTION_STORE) {
    return Malformed("copy_tiles.direction", "a load or a store",
                     absl::StrCat(static_cast<int>(request.direction())));
  }
  ASSIGN_OR_RETURN(copy.arena, ParseArena(request.arena()));
  ASSIGN_OR_RETURN(copy.ranges, RangesOf(request));
  ASSIGN_OR_RETURN(copy.memory, ports_.arenas.Find(copy.arena));
  const int64_t bytes = copy.memory->bytes().value();
  if (!copy.ranges.empty() && copy.ranges.back().end() > bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("copy of arena ", copy.arena.value(), ": expected ranges in its ", bytes,
                     " bytes, found one that ends at ", copy.ranges.back().end()));
  }
  return copy;
}

absl::Status TileCopies::OpenBounceBuffer(Copy& copy, UniqueFd descriptor) {
  const int64_t least = copy.ranges.empty() ? 0 : copy.ranges.back().end();
  ASSIGN_OR_RETURN(BounceBuffer::File file, BounceBuffer::Examine(std::move(descriptor), least));
  const BounceBufferKey key(copy.key, copy.arena);
  auto known = bounce_buffers_.find(key);
  // Bytes would else go to memory, or come from it, that the worker does not look at.
  if (known != bounce_buffers_.end() && !known->second.Is(file)) {
    return absl::InvalidArgumentError(
        "expected the bounce buffer that the task has here already, found another one");
  }
  if (known == bounce_buffers_.end()) {
    known = bounce_buffers_.try_emplace(key, ports_.gpu, std::move(file)).first;
  }
  copy.bounce_buffer = &known->second;
  return absl::OkStatus();
}

void TileCopies::Cancel(const TaskKey& key, const absl::Status& why) {
  for (Copy& copy : copies_) {
    if (copy.key == key) copy.failure.Update(why);
  }
  RequestLook();
}

void TileCopies::Release(const TaskKey& key, Done done) {
  if (std::ranges::find(copies_, key, &Copy::key) != copies_.end()) {
    return done(absl::FailedPreconditionError(
        absl::StrCat("bounce buffers of ", key.ToString(), ": something of it is being copied")));
  }
  std::vector<std::unique_ptr<RegisteredMemory>> memory;
  for (auto it = bounce_buffers_.lower_bound({key, ArenaId()});
       it != bounce_buffers_.end() && it->first.first == key; it = bounce_buffers_.erase(it)) {
    std::ranges::move(it->second.TakeMemory(), std::back_inserter(memory));
  }
  if (memory.empty()) return done(absl::OkStatus());
  ++releases_;
  const auto left = std::make_shared<size_t>(memory.size());
  const auto over = [this, left, done = std::make_shared<Done>(std::move(done))](bool /*gone*/) {
    if (--*left > 0) return;
    --releases_;
    (*done)(absl::OkStatus());
  };
  for (std::unique_ptr<RegisteredMemory>& window : memory) {
    auto give_back = [window = std::move(window)]() mutable {
      window.reset();
      return true;
    };
    threads_->Run(std::move(give_back), over);
  }
}

void TileCopies::RequestLook() {
  if (copies_.empty() || std::exchange(is_look_requested_, true)) return;
  ports_.loop.Cancel(next_look_);
  ports_.loop.Post([this] {
    is_look_requested_ = false;
    health_.Update(TakeDone());
    GoOn();
  });
}

void TileCopies::LookInTime() {
  const auto before = std::ssize(on_stream_);
  health_.Update(TakeDone());
  const auto left = std::ssize(on_stream_);
  pace_.Found(before - left, left);
  GoOn();
}

void TileCopies::GoOn() {
  if (health_.ok()) health_.Update(Advance());
  // What is not on the stream asks for a look when it goes on.
  if (!health_.ok() || is_look_requested_ || on_stream_.empty()) return;
  next_look_ = ports_.loop.RunAfter(pace_.delay(), [this] { LookInTime(); });
}

absl::Status TileCopies::Advance() {
  while (!copies_.empty()) {
    EndThoseWaiting();
    Copy& copy = copies_.front();
    DropThoseOver();
    BeginBatches(copy);
    RETURN_IF_ERROR(QueueRegistered(copy));
    // After a failure nothing else would look at those that need not be queued any more.
    DropThoseOver();
    if (!batches_.empty()) break;
    // Out of the list first: what hears of its end may ask for others.
    Copy over = std::move(copy);
    copies_.pop_front();
    over.done(over.failure);
  }
  return absl::OkStatus();
}

// Without the first one, of which batches may be under way.
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

absl::Status TileCopies::TakeDone() {
  while (!on_stream_.empty()) {
    Batch& batch = *on_stream_.front();
    ASSIGN_OR_RETURN(const bool is_done, batch.done->IsDone());
    if (!is_done) break;
    on_stream_.pop_front();
    // What has failed half-way is not compared.
    if (copies_.front().failure.ok() && copies_.front().checksums) {
      Hash(batch);
    } else {
      batch.state = Batch::State::kOver;
    }
  }
  return absl::OkStatus();
}

void TileCopies::Hash(Batch& batch) {
  batch.state = Batch::State::kHashing;
  const auto compare = [arena = copies_.front().arena, &batch] {
    return CompareHashes(arena, batch.pieces, *batch.window, HashesOf(*batch.lists));
  };
  threads_->Run(compare, [this, &batch](const absl::Status& compared) {
    copies_.front().failure.Update(compared);
    batch.state = Batch::State::kOver;
    RequestLook();
  });
}

absl::Status TileCopies::QueueRegistered(Copy& copy) {
  for (const std::unique_ptr<Batch>& batch : batches_) {
    if (batch->state != Batch::State::kRegistering) continue;
    const std::optional<absl::Status>& registered = batch->window->registered();
    // It must not go meanwhile.
    if (!registered.has_value()) continue;
    copy.failure.Update(*registered);
    if (copy.failure.ok()) {
      RETURN_IF_ERROR(QueueBatch(copy, *batch));
    } else {
      batch->state = Batch::State::kOver;
    }
  }
  return absl::OkStatus();
}

absl::Status TileCopies::QueueBatch(Copy& copy, Batch& batch) {
  copy.failure = QueuePieces(copy, batch);
  // After an error, too: the pieces before it are on the stream, and their window must stay.
  RETURN_IF_ERROR(batch.done->Record(*stream_));
  batch.state = Batch::State::kOnStream;
  on_stream_.push_back(&batch);
  return absl::OkStatus();
}

absl::Status TileCopies::QueuePieces(const Copy& copy, const Batch& batch) {
  RegisteredMemory& memory = batch.window->memory();
  for (const Piece& piece : batch.pieces) {
    const std::span<std::byte> on_host = batch.window->bytes(piece);
    const uint64_t on_gpu = copy.memory->address() + piece.offset;
    RETURN_IF_ERROR(copy.is_load ? memory.CopyFromGpu(on_gpu, on_host, *stream_)
                                 : memory.CopyToGpu(on_host, on_gpu, *stream_));
  }
  return copy.checksums ? QueueHashes(copy, batch) : absl::OkStatus();
}

void TileCopies::DropThoseOver() {
  for (std::unique_ptr<Batch>& batch : batches_) {
    if (batch->state == Batch::State::kOver) spare_.push_back(std::move(batch));
  }
  std::erase(batches_, nullptr);
}

void TileCopies::BeginBatches(Copy& copy) {
  while (copy.failure.ok() && !copy.is_taken() && batches_.size() < kBatchesMax) {
    absl::StatusOr<std::unique_ptr<Batch>> batch = TakeBatch();
    copy.failure = batch.status();
    if (!batch.ok()) return;
    TakePieces(copy, **batch);
    batches_.push_back(*std::move(batch));
  }
}

absl::StatusOr<std::unique_ptr<TileCopies::Batch>> TileCopies::TakeBatch() {
  if (!spare_.empty()) {
    std::unique_ptr<Batch> batch = std::move(spare_.back());
    spare_.pop_back();
    return batch;
  }
  auto batch = std::make_unique<Batch>();
  ASSIGN_OR_RETURN(
      batch->lists,
      RegisteredMemory::Create(ports_.gpu, ByteCount(kBoxBytes + kSegmentBytes + kHashBytes)));
  ASSIGN_OR_RETURN(batch->done, GpuEvent::Create(ports_.gpu));
  return batch;
}

void TileCopies::TakePieces(Copy& copy, Batch& batch) {
  const int64_t begin = copy.next_offset();
  const int64_t window_end = copy.bounce_buffer->WindowEnd(begin);
  batch.pieces.clear();
  while (batch.pieces.size() < kBatchPieces && !copy.is_taken() &&
         copy.next_offset() < window_end) {
    const TileRange& range = copy.ranges[copy.range];
    const int64_t offset = copy.next_offset();
    const int64_t end = std::min(range.end(), window_end);
    batch.pieces.push_back({.offset = offset, .bytes = end - offset});
    copy.range_taken += end - offset;
    if (end < range.end()) continue;
    ++copy.range;
    copy.range_taken = 0;
  }
  batch.state = Batch::State::kRegistering;
  batch.window = &copy.bounce_buffer->WindowAt(begin, *threads_, [this] { RequestLook(); });
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
  return ports_.gpu.Launch(
      hash_, leaves,
      {.boxes = DevicePointer<const KernelBox>(on_gpu),
       .segments = DevicePointer<const PackSegment>(on_gpu + kBoxBytes),
       .segment_count = count,
       .leaf_hashes = DevicePointer<uint64_t>(on_gpu + kBoxBytes + kSegmentBytes)},
      *stream_);
}

}  // namespace crossmesh
