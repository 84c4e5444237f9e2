#include "tests/gpu/gpu_mirror.h"

#include "common/base/byte_count.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr ByteCount kBytes(int64_t{32} << 20);
constexpr size_t kAlignment = 256;
// Between images, so that what is written there is found.
constexpr std::byte kBetweenImages{0xA5};

bool IsBetweenImages(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == kBetweenImages; });
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuMirror>> GpuMirror::Create(Gpu& gpu) {
  auto mirror = absl::WrapUnique(new GpuMirror(gpu));
  ASSIGN_OR_RETURN(mirror->stream_, GpuStream::Create(gpu));
  ASSIGN_OR_RETURN(mirror->staging_, RegisteredMemory::Create(gpu, kBytes));
  ASSIGN_OR_RETURN(mirror->images_, GpuMemory::Create(gpu, kBytes, {}));
  std::ranges::fill(mirror->staging_->bytes(), kBetweenImages);
  return mirror;
}

absl::Status GpuMirror::Add(std::span<std::byte> region) {
  const auto address = reinterpret_cast<uint64_t>(region.data());
  const size_t place = (used_bytes_ + kAlignment - 1) / kAlignment * kAlignment;
  const Image image = {.bytes = region.size(), .offset = place + address % kAlignment};
  // There is something after the last image as well, which must not be written.
  const size_t end = image.offset + image.bytes + kAlignment;
  if (end > staging_->bytes().size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a mirror of ", staging_->bytes().size(), " bytes: expected room for ", end));
  }
  used_bytes_ = end;
  CHECK(regions_.emplace(address, image).second) << "a region twice";
  return absl::OkStatus();
}

void GpuMirror::Clear() {
  std::ranges::fill(used(), kBetweenImages);
  regions_.clear();
  used_bytes_ = 0;
}

uint64_t GpuMirror::OnGpu(uint64_t address) const {
  if (address == 0) return 0;
  auto found = regions_.upper_bound(address);
  CHECK(found != regions_.begin()) << "in front of all regions";
  --found;
  const uint64_t inside = address - found->first;
  CHECK_LT(inside, found->second.bytes) << "in no region";
  return images_->address() + found->second.offset + inside;
}

absl::Status GpuMirror::CopyToGpu() {
  for (const auto& [address, image] : regions_) {
    std::memcpy(staging_->bytes().data() + image.offset, reinterpret_cast<const void*>(address),
                image.bytes);
  }
  return Finish(staging_->CopyToGpu(used(), images_->address(), *stream_));
}

absl::Status GpuMirror::CopyFromGpu() {
  RETURN_IF_ERROR(Finish(staging_->CopyFromGpu(images_->address(), used(), *stream_)));
  std::vector<Image> images;
  for (const auto& [address, image] : regions_) {
    std::memcpy(reinterpret_cast<void*>(address), staging_->bytes().data() + image.offset,
                image.bytes);
    images.push_back(image);
  }
  std::ranges::sort(images, {}, &Image::offset);
  images.push_back({.bytes = 0, .offset = used_bytes_});
  size_t end = 0;
  for (const Image& image : images) {
    if (!IsBetweenImages(used().subspan(end, image.offset - end))) {
      return absl::DataLossError(absl::StrCat("memory of the GPU between bytes ", end, " and ",
                                              image.offset,
                                              " of a mirror was written, where nothing should be"));
    }
    end = image.offset + image.bytes;
  }
  return absl::OkStatus();
}

absl::Status GpuMirror::Finish(const absl::Status& queued) {
  RETURN_IF_ERROR(queued);
  return gpu_.Check(gpu_.driver().cuStreamSynchronize(stream_->handle()), "cuStreamSynchronize");
}

}  // namespace crossmesh
