#include "client/cli/memory_flag.h"

#include "client/cli/options.h"

#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

namespace crossmesh {

void AddMemoryFlag(CLI::App& command, std::vector<std::string>& entries) {
  AddOption(command, "--memory", entries,
            "HOST=SOCKET,...: the memory sockets of the hosts that are looked at")
      .SplitAt(',')
      .Required();
}

absl::StatusOr<std::vector<HostMemory>> ParseMemoryFlag(std::span<const std::string> entries) {
  std::vector<HostMemory> hosts;
  for (const std::string& entry : entries) {
    std::pair<std::string, std::string> parts = absl::StrSplit(entry, absl::MaxSplits('=', 1));
    if (parts.first.empty() || parts.second.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--memory: expected HOST=SOCKET, found \"", entry, "\""));
    }
    hosts.push_back({.host = std::move(parts.first), .socket = std::move(parts.second)});
  }
  return hosts;
}

}  // namespace crossmesh
