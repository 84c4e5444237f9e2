#pragma once

#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace CLI {
class App;
}  // namespace CLI

namespace crossmesh {

// The memory socket of a host's worker.
struct HostMemory {
  std::string host;
  std::string socket;
};

// The flag --memory, HOST=SOCKET,...
void AddMemoryFlag(CLI::App& command, std::vector<std::string>& entries);

// InvalidArgument names the entry that is not HOST=SOCKET.
absl::StatusOr<std::vector<HostMemory>> ParseMemoryFlag(std::span<const std::string> entries);

}  // namespace crossmesh
