#pragma once

#include <optional>

#include <absl/status/status.h>

namespace crossmesh {

// What this host says to a process that reads the memory of another one with the same parent, as
// workers do for transfers inside the host.
struct SiblingReads {
  int error = 0;                    // errno of process_vm_readv; 0: allowed
  std::optional<int> ptrace_scope;  // kernel.yama.ptrace_scope, where there is one
  bool seccomp_filter = false;      // is this process under one?
};

// Asks by trying: a child process reads from this one, to which it is no more than a sibling in the
// kernel's eyes. Cost: one fork. The child shares no lock and runs no handler of fork, so threads
// and libraries of this process do not matter.
SiblingReads ProbeSiblingReads();

// PermissionDenied, with the reason and what to do about it, when reads are refused.
absl::Status CheckAllowed(const SiblingReads& reads);

}  // namespace crossmesh
