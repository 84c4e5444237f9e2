// What becomes of memory that is freed.

#pragma once

namespace crossmesh {

// From here on this process keeps up to half a GiB of what it frees, for what it allocates next: to
// get pages anew each time is a sixth to a third of what planning a large reshard costs. For
// processes that plan again and again. To be called before there are other threads.
void KeepFreedMemory();

}  // namespace crossmesh
