#pragma once

#include <string>

namespace crossmesh {

// 16 bytes from the system's random source: they cannot be guessed, so they set
// the messages of one task, program or probe apart from everything else that comes in.
std::string NewToken();

}  // namespace crossmesh
