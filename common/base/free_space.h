#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace crossmesh {

// Bytes that the file system of a folder has left for this user; nothing where there is no such
// folder.
std::optional<int64_t> FreeBytesAt(const std::string& folder);

}  // namespace crossmesh
