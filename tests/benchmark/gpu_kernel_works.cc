#include "tests/benchmark/gpu_kernel_works.h"

#include "common/base/status_macros.h"
#include "worker/gpu/executor/device_pointer.h"
#include "worker/gpu/kernels/element_scaling.h"
#include "worker/gpu/kernels/kernel_launches.h"

#include <cstring>
#include <span>
#include <string>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kWidths = 4;  // of a slice in its matrix
// Of bf16: rows of 4 KiB.
constexpr int64_t kColumns = 2048;
// From so many bytes on a launch is wanted to be at full speed (docs/gpu.md).
constexpr int64_t kLargeBytes = int64_t{32} << 20;
constexpr int64_t kScalesPitchBytes = kColumns / kScaleBlock * static_cast<int64_t>(sizeof(float));

KernelBox OneRow(uint64_t address, int64_t bytes) {
  return {.address = address, .rows = 1, .row_bytes = bytes, .pitch_bytes = bytes};
}

// A list on the GPU; waits for its copy.
template <class Item>
absl::StatusOr<std::unique_ptr<GpuMemory>> Uploaded(Gpu& gpu, const std::vector<Item>& list,
                                                    const GpuStream& stream) {
  const auto bytes = std::as_bytes(std::span(list));
  const ByteCount count(static_cast<int64_t>(bytes.size()));
  ASSIGN_OR_RETURN(auto memory, GpuMemory::Create(gpu, count, {}));
  ASSIGN_OR_RETURN(const auto staging, RegisteredMemory::Create(gpu, count));
  std::memcpy(staging->bytes().data(), bytes.data(), bytes.size());
  RETURN_IF_ERROR(staging->CopyToGpu(staging->bytes(), memory->address(), stream));
  RETURN_IF_ERROR(gpu.SynchronizeForShutdown());
  return memory;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuKernelWorks>> GpuKernelWorks::Create(Gpu& gpu,
                                                                       const MeasuredTiles& tiles,
                                                                       int64_t bytes) {
  auto works = absl::WrapUnique(new GpuKernelWorks(gpu, tiles, bytes));
  // The longest range is a half of the tiles.
  const ByteCount hash_bytes(LeavesOf(0, 2 * bytes) * static_cast<int64_t>(sizeof(uint64_t)));
  const ByteCount scale_bytes(ScaleBlocks(works->Matrix().rows) * kScalesPitchBytes);
  ASSIGN_OR_RETURN(works->packed_, GpuMemory::Create(gpu, ByteCount(bytes), {}));
  ASSIGN_OR_RETURN(works->scales_, GpuMemory::Create(gpu, scale_bytes, {}));
  ASSIGN_OR_RETURN(works->factors_, GpuMemory::Create(gpu, scale_bytes, {}));
  ASSIGN_OR_RETURN(works->sent_hashes_, GpuMemory::Create(gpu, hash_bytes, {}));
  ASSIGN_OR_RETURN(works->own_hashes_, RegisteredMemory::Create(gpu, hash_bytes));
  ASSIGN_OR_RETURN(works->root_hashes_, RegisteredMemory::Create(gpu, hash_bytes));
  RETURN_IF_ERROR(works->Upload());
  // So that the factors are there.
  RETURN_IF_ERROR(works->Scale().status());
  return works;
}

std::vector<MeasuredWork> GpuKernelWorks::All() {
  std::vector<MeasuredWork> works;
  for (const bool hashed : {false, true}) {
    const double wanted = hashed ? 0.75 : 0.85;
    for (const Box rows : {kLongRows, kShortRows}) {
      const std::string name = absl::StrCat(rows == kLongRows ? "rows of 4 KiB" : "rows of 512 B",
                                            hashed ? ", hashed" : "");
      works.push_back({absl::StrCat("pack ", name), wanted, 2 * bytes_,
                       [this, rows, hashed] { return Pack(segments_of_box_.at(rows), hashed); }});
      works.push_back({absl::StrCat("unpack ", name), wanted, 2 * bytes_,
                       [this, rows, hashed] { return Unpack(segments_of_box_.at(rows), hashed); }});
    }
  }
  works.push_back({"scales of bf16", 0.65, bytes_, [this] { return Scale(); }});
  works.push_back(
      {"pack bf16 as fp8, hashed", 0.65, bytes_ + bytes_ / 2, [this] { return Quantize(); }});
  works.push_back({"copy of one piece", 0.90, 4 * bytes_, [this] { return Copy(false); }});
  works.push_back({"copy of one piece, hashed", 0.60, 4 * bytes_, [this] { return Copy(true); }});
  AddLaunches(works);
  return works;
}

void GpuKernelWorks::AddLaunches(std::vector<MeasuredWork>& works) {
  for (const auto& [chunks, segments] : launches_) {
    const std::string name =
        absl::StrCat("a step's ", chunks.count, " x ", chunks.bytes >> 10, " KiB, hashed");
    const double wanted = segments.bytes < kLargeBytes ? 0 : 0.75;
    works.push_back({absl::StrCat("pack ", name), wanted, 2 * segments.bytes,
                     [this, segments] { return Pack(segments, true); }});
    works.push_back({absl::StrCat("unpack ", name), wanted, 2 * segments.bytes,
                     [this, segments] { return Unpack(segments, true); }});
  }
}

KernelBox GpuKernelWorks::Slice(int64_t row_bytes) const {
  return {.address = tiles_.first_half(),
          .rows = bytes_ / row_bytes,
          .row_bytes = row_bytes,
          .pitch_bytes = kWidths * row_bytes};
}

ScaledMatrix GpuKernelWorks::Matrix() const {
  return {.address = tiles_.first_half(),
          .rows = bytes_ / (2 * kColumns),
          .columns = kColumns,
          .pitch_bytes = kWidths * 2 * kColumns,
          .scales_address = scales_ == nullptr ? 0 : scales_->address(),
          .factors_address = factors_ == nullptr ? 0 : factors_->address(),
          .scales_pitch_bytes = kScalesPitchBytes};
}

absl::Status GpuKernelWorks::Upload() {
  const ScaledMatrix matrix = Matrix();
  KernelBoxList rows;
  for (int64_t row = 0; row < matrix.rows; ++row) {
    rows.AppendQuantized(matrix.address + row * matrix.pitch_bytes, kColumns,
                         matrix.factors_address + row / kScaleBlock * kScalesPitchBytes);
  }
  std::vector<KernelBox> boxes(kQuantized);
  boxes[kLongRows] = Slice(4096);
  boxes[kShortRows] = Slice(512);
  boxes[kFirstHalf] = OneRow(tiles_.first_half(), 2 * bytes_);
  boxes[kSecondHalf] = OneRow(tiles_.second_half(), 2 * bytes_);
  boxes.insert(boxes.end(), rows.boxes().begin(), rows.boxes().end());
  quantized_boxes_ = static_cast<int32_t>(rows.boxes().size());
  const GpuStream& stream = tiles_.timed().stream();
  ASSIGN_OR_RETURN(boxes_, Uploaded(gpu_, boxes, stream));
  ASSIGN_OR_RETURN(matrix_, Uploaded(gpu_, std::vector{matrix}, stream));
  for (const Box box : {kLongRows, kShortRows}) AddSegment(box, bytes_);
  AddSegment(kQuantized, bytes_ / 2);
  segments_.back().box_end = kQuantized + quantized_boxes_;
  for (const int64_t bytes : {int64_t{64} << 10, int64_t{1} << 20, int64_t{16} << 20}) {
    for (const int64_t count : {1, 8, 64}) AddChunks({.bytes = bytes, .count = count});
  }
  ASSIGN_OR_RETURN(segments_on_gpu_, Uploaded(gpu_, segments_, stream));
  const CopySegment copied = {.end = 2 * bytes_,
                              .first_source = kFirstHalf,
                              .source_end = kFirstHalf + 1,
                              .first_destination = kSecondHalf,
                              .destination_end = kSecondHalf + 1};
  ASSIGN_OR_RETURN(copied_, Uploaded(gpu_, std::vector{copied}, stream));
  return absl::OkStatus();
}

void GpuKernelWorks::AddSegment(Box box, int64_t bytes) {
  segments_of_box_[box] = {
      .first = std::ssize(segments_), .count = 1, .blocks = LeavesOf(0, bytes), .bytes = bytes};
  segments_.push_back({.end = bytes, .first_box = box, .box_end = box + 1});
}

void GpuKernelWorks::AddChunks(const Chunks& chunks) {
  Segments added = {.first = std::ssize(segments_), .count = static_cast<int32_t>(chunks.count)};
  if (chunks.bytes * chunks.count > bytes_) return;
  for (int64_t i = 0; i < chunks.count; ++i) {
    segments_.push_back({.begin = added.bytes,
                         .end = added.bytes + chunks.bytes,
                         .packed_offset = added.bytes,
                         .first_hash = added.blocks,
                         .first_root_hash = added.blocks,
                         .first_box = kLongRows,
                         .box_end = kLongRows + 1,
                         .first_block = static_cast<int32_t>(added.blocks)});
    added.bytes += chunks.bytes;
    added.blocks += LeavesOf(0, chunks.bytes);
  }
  launches_.emplace_back(chunks, added);
}

const KernelBox* GpuKernelWorks::BoxesOnGpu() const {
  return DevicePointer<const KernelBox>(boxes_->address());
}

uint64_t* GpuKernelWorks::HashesOnGpu() const {
  return DevicePointer<uint64_t>(sent_hashes_->address());
}

PackArguments GpuKernelWorks::ArgumentsFor(const Segments& segments) const {
  return {
      .boxes = BoxesOnGpu(),
      .segments = DevicePointer<const PackSegment>(segments_on_gpu_->address()) + segments.first,
      .segment_count = segments.count,
      .packed = DevicePointer<std::byte>(packed_->address())};
}

template <class Arguments>
absl::Status GpuKernelWorks::Launch(absl::string_view kernel, int64_t blocks,
                                    const Arguments& arguments) {
  return gpu_.Launch(gpu_.KernelNamed<Arguments>(kernel), blocks, arguments,
                     tiles_.timed().stream());
}

absl::StatusOr<double> GpuKernelWorks::Pack(const Segments& segments, bool hashed) {
  PackArguments arguments = ArgumentsFor(segments);
  if (hashed) arguments.leaf_hashes = HashesOnGpu();
  return tiles_.timed().SecondsOf(
      [&] { return Launch("crossmesh_pack", segments.blocks, arguments); });
}

absl::StatusOr<double> GpuKernelWorks::Unpack(const Segments& segments, bool hashed) {
  PackArguments arguments = ArgumentsFor(segments);
  if (hashed) {
    arguments.leaf_hashes = DevicePointer<uint64_t>(own_hashes_->device_address());
    arguments.root_hashes = HashesOnGpu();
    arguments.root_hashes_to = DevicePointer<uint64_t>(root_hashes_->device_address());
  }
  return tiles_.timed().SecondsOf(
      [&] { return Launch("crossmesh_unpack", segments.blocks, arguments); });
}

absl::StatusOr<double> GpuKernelWorks::Scale() {
  const ScaleArguments arguments = {
      .matrices = DevicePointer<const ScaledMatrix>(matrix_->address()), .matrix_count = 1};
  const int64_t blocks = ScaleBlocks(Matrix().rows) * ScaleBlocks(kColumns);
  return tiles_.timed().SecondsOf([&] { return Launch("crossmesh_scale", blocks, arguments); });
}

absl::StatusOr<double> GpuKernelWorks::Quantize() {
  const Segments& segments = segments_of_box_.at(kQuantized);
  PackArguments arguments = ArgumentsFor(segments);
  arguments.leaf_hashes = HashesOnGpu();
  return tiles_.timed().SecondsOf(
      [&] { return Launch("crossmesh_pack_bf16_as_f8_e4m3", segments.blocks, arguments); });
}

absl::StatusOr<double> GpuKernelWorks::Copy(bool hashed) {
  CopyArguments arguments = {.sources = BoxesOnGpu(),
                             .destinations = BoxesOnGpu(),
                             .segments = DevicePointer<const CopySegment>(copied_->address()),
                             .segment_count = 1};
  if (hashed) {
    arguments.source_hashes = HashesOnGpu();
    arguments.destination_hashes = DevicePointer<uint64_t>(own_hashes_->device_address());
  }
  return tiles_.timed().SecondsOf(
      [&] { return Launch("crossmesh_copy", LeavesOf(0, 2 * bytes_), arguments); });
}

}  // namespace crossmesh
