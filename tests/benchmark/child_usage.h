#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace crossmesh {

// What a child of this process has used so far.
struct ChildUsage {
  std::string program;           // the system keeps 15 bytes of its name
  double processor_seconds = 0;  // of all threads that still run
  int64_t resident_bytes = 0;
};

// All children, in order of their process ids.
std::vector<ChildUsage> UsageOfChildren();

}  // namespace crossmesh
