#pragma once

#include <cstdint>
#include <string>

namespace crossmesh {

// How many bytes of memory this process may use at most: what the machine has, or less where its
// control group, of version 1 or 2, or one above that allows less. `root`: of the file system in
// which /proc and /sys/fs/cgroup are looked for; for tests.
int64_t MemoryLimit(const std::string& root = "");

// How many bytes this process may map beside what it has mapped, by its limit of address space
// (ulimit -v); the largest number where there is none.
int64_t AddressSpaceLeft();

}  // namespace crossmesh
