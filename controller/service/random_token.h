#pragma once

#include <cstdint>

namespace crossmesh {

// Half of a data plane's token, from the system's random source: nobody can guess it.
uint64_t RandomTokenWord();

}  // namespace crossmesh
