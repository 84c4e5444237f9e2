#pragma once

#include "common/base/unique_fd.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/host_threads.h"
#include "worker/gpu/device/registered_memory.h"
#include "worker/gpu/protocol/tile_place.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Memory of the host that a worker shares for a task, as the process of a GPU has it: in windows,
// each of which is registered once, on a thread beside the loop, when it is needed first, and stays
// so. Confined to the loop of the Gpu.
class BounceBuffer {
 public:
  static constexpr int64_t kWindowBytes = int64_t{32} << 20;  // windows begin at its multiples

  class Window {
   public:
    explicit Window(int64_t begin) : begin_(begin) {}

    // Nothing while it is being registered; an error when it could not be, for good.
    const std::optional<absl::Status>& registered() const { return registered_; }
    // Where it was.
    RegisteredMemory& memory() const { return *memory_; }
    std::span<std::byte> bytes(const TileRange& range) const {
      return memory_->bytes().subspan(range.offset - begin_, range.bytes);
    }

   private:
    friend class BounceBuffer;

    const int64_t begin_;
    std::optional<absl::Status> registered_;
    std::unique_ptr<RegisteredMemory> memory_;
  };

  // A file in memory.
  struct File {
    UniqueFd descriptor;
    uint64_t device = 0;  // with the inode: which file it is
    uint64_t inode = 0;
    int64_t bytes = 0;
  };
  // InvalidArgument: it is no file, or has fewer than `least` bytes.
  static absl::StatusOr<File> Examine(UniqueFd descriptor, int64_t least);

  // `gpu` must outlive it.
  BounceBuffer(Gpu& gpu, File file) : gpu_(gpu), file_(std::move(file)) {}
  BounceBuffer(const BounceBuffer&) = delete;
  BounceBuffer& operator=(const BounceBuffer&) = delete;

  // Whether it is this file, and as large as it was.
  bool Is(const File& file) const;

  // Where the window with this byte ends.
  int64_t WindowEnd(int64_t offset) const;
  // The window with this byte, which stays where it is. Who asks for it first has `changed` called
  // from the loop when it has been registered, or could not be; nothing here may go before.
  const Window& WindowAt(int64_t offset, HostThreads& threads, absl::AnyInvocable<void()> changed);

  // All that was registered, to be given back where that may take long. No window may be in use.
  std::vector<std::unique_ptr<RegisteredMemory>> TakeMemory();

 private:
  Gpu& gpu_;
  const File file_;
  std::map<int64_t, Window> windows_;  // by where they begin
};

}  // namespace crossmesh
