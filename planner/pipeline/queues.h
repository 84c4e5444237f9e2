#pragma once

#include "planner/pipeline/rank_actions.h"

#include <cstdint>
#include <ostream>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Into which queues a rank's actions are split. A queue does one after the other, in the rank's
// order.
enum class QueueScope : uint8_t {
  kWholeRank,  // one for everything: ops wait for sends and receives before them
  kRank,       // one for ops, one for messages
  kPeer,       // one for ops, one for the messages with each other rank
  kTransfer,   // one for ops, one for each transfer: Crossmesh's
};

struct QueueOptions {
  QueueScope scope = QueueScope::kTransfer;
  // How many messages may wait for their receiver between two ranks, each way; under kTransfer, of
  // each transfer. 0: a message passes when both of its ends are at the heads of their queues.
  int32_t waiting_max = 0;
};

// How long the actions take when messages wait for nothing but their queues. A send waits for the
// end of its op, an op for its inputs. Messages carry no name: a receive takes the oldest one that
// waits on the line from one rank to the other, under kTransfer on that of the transfer, and is
// stuck when that is another message. FailedPrecondition, with the heads of the queues, when no
// queue can go on. Actions that get through with no message waiting do so with any number of them.
// Cost: actions, times the queues at worst.
absl::StatusOr<double> SimulateQueues(const OpTable& ops, const RankActions& actions,
                                      const QueueOptions& options);

// Proves that both ends of each line have the same messages in the same order. InvalidArgument,
// with the first place where they differ. Cost: actions.
absl::Status ProveLines(const OpTable& ops, const RankActions& actions, QueueScope scope);

}  // namespace crossmesh
