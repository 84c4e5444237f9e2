#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/strings/string_view.h>

namespace crossmesh {

// What one look at a host found.
struct HostCheck {
  enum class State : uint8_t {
    kGood,
    kNote,     // works, and could be better, or matters to some uses only
    kProblem,  // something will fail
  };

  std::string name;  // e.g. "open files"
  State state = State::kGood;
  std::string found;   // one line
  std::string advice;  // one line; empty when there is nothing to do
};

absl::string_view StateName(HostCheck::State state);  // "good", "note", "problem"

struct HostCheckOptions {
  std::string root = "/";  // where /proc and /sys are; for tests
  std::string nvml;        // NVML's library; empty: it is not asked
  std::string nccl;        // NCCL's library, and that of M2N; empty: it is not looked for
  std::string m2n;
  std::string programs;      // the folder of this installation's programs
  std::string listen;        // HOST:PORT that a daemon is to listen on; empty: any of loopback
  int64_t memory_bytes = 0;  // that a worker's storages are to have
  std::optional<int64_t> shared_memory_bytes;  // free in /dev/shm; none: asks the system
};

// Looks at what Crossmesh needs of this host, in the order in which a person would: programs,
// kernel, limits, memory, network, clock. Reads files and asks the system; changes nothing. Every
// check is in the answer, good ones too.
std::vector<HostCheck> CheckHost(const HostCheckOptions& options);

}  // namespace crossmesh
