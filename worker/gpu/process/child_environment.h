// What the process of a GPU gets of its worker's environment.

#pragma once

#include <span>
#include <string>
#include <vector>

#include <absl/strings/string_view.h>

namespace crossmesh {

struct ChildVariable {
  absl::string_view name;
  absl::string_view value;  // that it has instead, or by default; empty: none
  absl::string_view reason;
};

// Variables that change what calls of CUDA or NCCL mean, and therefore are not inherited.
std::span<const ChildVariable> ChildVariables();

// A variable that a process has unless its worker has one of that name, and what for.
std::span<const ChildVariable> ChildDefaults();

// Those of `inherited`, as `environ` has it, with a value that is not passed on.
std::vector<ChildVariable> VariablesNotInherited(const char* const* inherited);

// Whether it has a variable of this name.
bool HasVariable(const std::vector<std::string>& environment, absl::string_view name);

// "NAME=value": `own`, then what ChildVariables() says, then what else is inherited, then what
// ChildDefaults() says; each name once.
std::vector<std::string> ChildEnvironment(std::vector<std::string> own,
                                          const char* const* inherited);

}  // namespace crossmesh
