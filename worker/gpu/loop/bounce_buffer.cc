#include "worker/gpu/loop/bounce_buffer.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <sys/stat.h>

namespace crossmesh {

absl::StatusOr<BounceBuffer::File> BounceBuffer::Examine(UniqueFd descriptor, int64_t least) {
  if (!descriptor.valid()) {
    return absl::InvalidArgumentError("expected a descriptor of host memory, found none");
  }
  struct stat found = {};
  const bool is_file = fstat(descriptor.get(), &found) == 0 && S_ISREG(found.st_mode);
  const int64_t bytes = is_file ? found.st_size : 0;
  if (!is_file || bytes < least) {
    return absl::InvalidArgumentError(absl::StrCat("expected host memory of at least ", least,
                                                   " bytes, found ", bytes, " bytes"));
  }
  return File{.descriptor = std::move(descriptor),
              .device = found.st_dev,
              .inode = found.st_ino,
              .bytes = bytes};
}

bool BounceBuffer::Is(const File& file) const {
  return file.device == file_.device && file.inode == file_.inode && file.bytes == file_.bytes;
}

int64_t BounceBuffer::WindowEnd(int64_t offset) const {
  return std::min(offset / kWindowBytes * kWindowBytes + kWindowBytes, file_.bytes);
}

const BounceBuffer::Window& BounceBuffer::WindowAt(int64_t offset, HostThreads& threads,
                                                   absl::AnyInvocable<void()> changed) {
  const int64_t begin = offset / kWindowBytes * kWindowBytes;
  const auto [entry, is_new] = windows_.try_emplace(begin, begin);
  Window& window = entry->second;
  if (!is_new) return window;
  const auto make = [&gpu = gpu_, fd = file_.descriptor.get(), begin,
                     bytes = ByteCount(WindowEnd(begin) - begin)] {
    return RegisteredMemory::Map(gpu, fd, begin, bytes);
  };
  threads.Run(make, [&window, changed = std::move(changed)](
                        absl::StatusOr<std::unique_ptr<RegisteredMemory>> memory) mutable {
    window.registered_ = memory.status();
    if (memory.ok()) window.memory_ = *std::move(memory);
    changed();
  });
  return window;
}

std::vector<std::unique_ptr<RegisteredMemory>> BounceBuffer::TakeMemory() {
  std::vector<std::unique_ptr<RegisteredMemory>> memory;
  for (auto& [begin, window] : windows_) {
    if (window.memory_ != nullptr) memory.push_back(std::move(window.memory_));
  }
  windows_.clear();
  return memory;
}

}  // namespace crossmesh
