// What becomes of memory that is freed.

#pragma once

namespace crossmesh {

// From here on this process keeps up to half a GiB of what it frees, for what it allocates next: to
// get pages anew each time is a sixth to a third of what planning a large reshard costs. For
// processes that plan again and again. To be called before there are other threads.
void KeepFreedMemory();

// Gives all of it back when it is more than that. The allocator does not where pieces in use lie
// between those that are free, as after thousands of connections. To be called now and then: reads
// a small file, and with more than half a GiB in memory asks the allocator, which takes time by the
// number of free pieces.
void GiveBackFreedMemory();

}  // namespace crossmesh
