#pragma once

#include "planner/pipeline/op_table.h"

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// What a rank does: computes a step, or has one end of a message.
struct Action {
  enum class Kind : uint8_t { kCompute, kSend, kReceive };

  Kind kind = Kind::kCompute;
  OpIndex op = 0;              // the step that is computed, or the op whose output is moved
  TransferIndex transfer = 0;  // of the message

  friend bool operator==(const Action&, const Action&) = default;
};

// A schedule with its messages, by rank. Sends come right after the step whose output they send.
using RankActions = std::vector<std::vector<Action>>;

// Where a rank's receives stand.
enum class ReceivePlacement : uint8_t {
  kBeforeUse,  // before the step that needs the input
  kAtSend,     // where the rank is when its peer sends, if all ranks take turns, a step each:
               // PyTorch's lowering of schedules
};

// The actions of the ranks under a schedule. InvalidArgument when an op waits for itself, as
// ProveOrder. Cost: linear.
absl::StatusOr<RankActions> MakeRankActions(const OpTable& ops, ReceivePlacement placement);

// "compute 0F1", "send 0F1 to rank 1", "receive 0F1 from rank 0".
std::string ToString(const Action& action, const OpTable& ops);

}  // namespace crossmesh
