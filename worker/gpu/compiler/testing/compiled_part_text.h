#pragma once

#include "worker/gpu/compiler/compiled_part.h"

#include <string>

namespace crossmesh {

// Stable text for people and golden tests: each step with what it waits for and does.
std::string ToText(const CompiledPart& compiled);

}  // namespace crossmesh
