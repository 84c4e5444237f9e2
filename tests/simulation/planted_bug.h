#pragma once

#include <absl/strings/string_view.h>

namespace crossmesh {

// The one bug that is planted now; empty: none. Only in programs that are linked with the sources
// that plant_bugs.py makes.
void PlantBug(absl::string_view name);
bool IsPlanted(absl::string_view name);

}  // namespace crossmesh
