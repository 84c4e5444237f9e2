#pragma once

#include <cstdint>

namespace crossmesh {

// From here on the system answers process_vm_readv with `action` (SECCOMP_RET_...), to this thread
// and to the threads and processes that it makes: as a container's seccomp profile does.
void FilterSiblingReads(uint32_t action);

}  // namespace crossmesh
