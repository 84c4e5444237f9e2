// The allocator of this process: jemalloc in every program, but for those with sanitizers, which
// have their own, and the processes of Python, which have the system's.

#pragma once

#include <cstdint>

namespace crossmesh {

// What is allocated. With a sanitizer's allocator: 0.
int64_t AllocatedBytes();

// From here on this process keeps up to half a GiB of what it frees, for what it allocates next: to
// get pages anew each time is a sixth to a third of what planning a large reshard costs. For
// processes that plan again and again, which call GiveBackFreedMemory. To be called before there
// are other threads.
void KeepFreedMemory();

// Gives all of it back when it is more than that, as after thousands of connections. To be called
// now and then: reads a small file, and with more than half a GiB in memory asks the allocator,
// which takes time by the number of free pieces.
void GiveBackFreedMemory();

}  // namespace crossmesh
