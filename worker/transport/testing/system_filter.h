#pragma once

#include <cstdint>

namespace crossmesh {

// From here on the system answers with `action` (SECCOMP_RET_...) to this thread, and to the
// threads and processes that it makes, as a container's seccomp profile does. Calls add up.

// Where process_vm_readv is called.
void FilterSiblingReads(uint32_t action);
// Where memory is to be mapped as memory of others is: shared and only for reading.
void FilterSharedMappings(uint32_t action);

}  // namespace crossmesh
