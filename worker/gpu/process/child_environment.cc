#include "worker/gpu/process/child_environment.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr ChildVariable kVariables[] = {
    {.name = "CUDA_DEVICE_MAX_CONNECTIONS",
     .value = "",
     .reason = "1, as training sets it, puts packs, transfers and unpacks into one hardware queue, "
               "where a transfer that waits for its peer holds up all others"},
    {.name = "CUDA_DEVICE_WAITS_ON_EXCEPTION",
     .value = "",
     .reason = "after an error the process would wait for a debugger instead of telling it"},
    {.name = "CUDA_LAUNCH_BLOCKING",
     .value = "",
     .reason =
         "a launch would wait for its kernel, and a kernel of NCCL waits until all ranks have "
         "launched theirs"},
    // Set, since /etc/nccl.conf adds variables that are not there.
    {.name = "NCCL_COMM_BLOCKING",
     .value = "0",
     .reason = "1 counts more than what a communicator is made with: NCCL's calls would block the "
               "thread that issues all work"},
    {.name = "NCCL_COMM_ID", .value = "", .reason = "all communicators would meet at one address"},
};

// docs/adr/0014 says what they cost and bring; the planner counts on them (gpu_costs.h).
constexpr ChildVariable kDefaults[] = {
    {.name = "NCCL_MIN_P2P_NCHANNELS",
     .value = "64",
     .reason = "with 32, four GPUs that send to four others have half of them"},
    {.name = "NCCL_BUFFSIZE",
     .value = "2097152",
     .reason = "there is a buffer for each peer and channel, of which there are twice as many"},
    {.name = "NCCL_LL128_BUFFSIZE",
     .value = "1048576",
     .reason = "the same; sends and receives do not even use it"},
};

absl::string_view NameIn(absl::string_view variable) {
  return variable.substr(0, variable.find('='));
}

absl::string_view ValueIn(absl::string_view variable) {
  const size_t sign = variable.find('=');
  return sign == absl::string_view::npos ? "" : variable.substr(sign + 1);
}

}  // namespace

std::span<const ChildVariable> ChildVariables() { return kVariables; }

std::span<const ChildVariable> ChildDefaults() { return kDefaults; }

std::vector<ChildVariable> VariablesNotInherited(const char* const* inherited) {
  std::vector<ChildVariable> found;
  for (; *inherited != nullptr; ++inherited) {
    const auto* const variable =
        std::ranges::find(kVariables, NameIn(*inherited), &ChildVariable::name);
    if (variable != std::end(kVariables) && ValueIn(*inherited) != variable->value) {
      found.push_back(*variable);
    }
  }
  return found;
}

bool HasVariable(const std::vector<std::string>& environment, absl::string_view name) {
  return std::ranges::find(environment, name, NameIn) != environment.end();
}

std::vector<std::string> ChildEnvironment(std::vector<std::string> own,
                                          const char* const* inherited) {
  std::vector<std::string> environment = std::move(own);
  for (const ChildVariable& variable : kVariables) {
    if (variable.value.empty() || HasVariable(environment, variable.name)) continue;
    environment.push_back(absl::StrCat(variable.name, "=", variable.value));
  }
  for (; *inherited != nullptr; ++inherited) {
    const absl::string_view name = NameIn(*inherited);
    const bool is_ruled =
        std::ranges::find(kVariables, name, &ChildVariable::name) != std::end(kVariables);
    if (!is_ruled && !HasVariable(environment, name)) environment.emplace_back(*inherited);
  }
  for (const ChildVariable& variable : kDefaults) {
    if (HasVariable(environment, variable.name)) continue;
    environment.push_back(absl::StrCat(variable.name, "=", variable.value));
  }
  return environment;
}

}  // namespace crossmesh
