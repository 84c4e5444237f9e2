// The allocator of this process: jemalloc in every program, but for those with sanitizers, which
// have their own, and the processes of Python, which have the system's.

#pragma once

#include <cstdint>
#include <optional>

#include <absl/time/time.h>

namespace crossmesh {

// What is allocated. With a sanitizer's allocator: 0.
int64_t AllocatedBytes();

// From here on this process keeps up to half a GiB of what it frees, for what it allocates next: to
// get pages anew each time is a sixth to a third of what planning a large reshard costs. For
// processes that plan again and again, which have FreedMemory. To be called before there are other
// threads.
void KeepFreedMemory();

// What this process keeps. Thread-compatible.
class FreedMemory {
 public:
  // Gives all of it back when it is more than that, as after thousands of connections, and every
  // half hour, since each peak leaves more of it. To be called now and then, with the monotonic
  // time: reads a small file, and where something is to go back asks the allocator, which takes
  // time by the number of free pieces.
  void GiveBack(absl::Duration now);

 private:
  std::optional<absl::Duration> given_back_;  // when; or when it was first asked
};

}  // namespace crossmesh
