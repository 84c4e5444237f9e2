#include "tests/simulation/planted_bug.h"

#include <string>

namespace crossmesh {
namespace {

std::string& Planted() {
  static auto* const name = new std::string;
  return *name;
}

}  // namespace

void PlantBug(absl::string_view name) { Planted() = std::string(name); }
bool IsPlanted(absl::string_view name) { return Planted() == name; }

}  // namespace crossmesh
