#pragma once

#include "planner/pipeline/rank_actions.h"

#include <cstdint>
#include <ostream>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// In which queues a rank's actions stand. A queue does one after the other, in the actions's order.
enum class QueueScope : uint8_t {
  kProgram,  // one for everything: who sends or receives waits for it
  kRank,     // one for ops, one for transfers
  kPeer,     // one for ops, one for the transfers with each other rank
  kChannel,  // one for ops, one for each channel: Crossmesh's
};

struct QueueOptions {
  QueueScope scope = QueueScope::kChannel;
  // Messages that wait for their receiver between two ranks, each way; under kChannel in each
  // channel. 0: a transfer takes place when both of its ends are at the heads of their queues.
  int32_t slots = 0;
};

// The time of a actions whose transfers wait for nothing but their queues. A send waits for its op
// to end, an op for its inputs. Messages carry no name: a receive takes the first of those that are
// on the line from one rank to the other, under kChannel on that of the channel, and is stuck when
// that is another one. FailedPrecondition, with the heads of the queues, when none can go on.
// What goes on with no slots goes on with any. Cost: actions, times the queues at worst.
absl::StatusOr<double> RunQueues(const OpTable& ops, const RankActions& actions,
                                 const QueueOptions& options);

// Proves that both ends of each line have the same transfers in the same order. InvalidArgument,
// with the first place where they differ. Cost: actions.
absl::Status ProveLines(const OpTable& ops, const RankActions& actions, QueueScope scope);

}  // namespace crossmesh
