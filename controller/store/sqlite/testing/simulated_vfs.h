#pragma once

#include <memory>
#include <string>

struct sqlite3_vfs;

namespace crossmesh {

class SimulatedDisk;

// The VFS of this name, to be registered; the name must stay where it is.
std::unique_ptr<sqlite3_vfs> MakeSimulatedVfs(SimulatedDisk& disk, const std::string& name);

}  // namespace crossmesh
