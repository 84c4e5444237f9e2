#pragma once

#include "common/base/digest.h"
#include "worker/executor/task.h"

#include <cstdint>
#include <type_traits>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What every rank tells its peers before the first step of an execution: its compiled part,
// and for which task. Messages on a communicator bear no names, so bytes of another plan, or of
// another replay of the same plan, would be taken for those that are expected. Sent as it is in
// memory.
struct ExecutionAgreement {
  Digest compiled;  // CompiledPart::agreement
  uint64_t operation = 0;
  uint64_t epoch = 0;
  uint64_t plan = 0;
  uint64_t instance = 0;

  static ExecutionAgreement Of(const Digest& compiled, const TaskKey& key) {
    return {.compiled = compiled,
            .operation = key.operation,
            .epoch = key.epoch,
            .plan = key.plan,
            .instance = key.instance};
  }
  friend bool operator==(const ExecutionAgreement&, const ExecutionAgreement&) = default;
};
static_assert(std::is_trivially_copyable_v<ExecutionAgreement>);
static_assert(std::has_unique_object_representations_v<ExecutionAgreement>);

// FailedPrecondition, naming the peer and both sides, when the peer runs anything else.
absl::Status CheckAgreement(const ExecutionAgreement& own, const ExecutionAgreement& of_peer,
                            absl::string_view peer);

}  // namespace crossmesh
