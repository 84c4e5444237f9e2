// What the process of a GPU gets of its worker's environment.

#pragma once

#include <span>
#include <string>
#include <vector>

#include <absl/strings/string_view.h>

namespace crossmesh {

// A variable that changes what calls of CUDA or NCCL mean, and therefore is not inherited.
struct ChildVariable {
  absl::string_view name;
  absl::string_view value;  // that it has instead; empty: none
  absl::string_view reason;
};
std::span<const ChildVariable> ChildVariables();

// Those of `inherited`, as `environ` has it, with a value that is not passed on.
std::vector<ChildVariable> VariablesNotInherited(const char* const* inherited);

// Whether it has a variable of this name.
bool HasVariable(const std::vector<std::string>& environment, absl::string_view name);

// "NAME=value": `own`, then what ChildVariables() says, then what else is inherited; each name
// once.
std::vector<std::string> ChildEnvironment(std::vector<std::string> own,
                                          const char* const* inherited);

}  // namespace crossmesh
