#pragma once

#include "planner/layers/layer_program.h"
#include "planner/pipeline/timeline.h"
#include "planner/pipeline/transfer_model.h"

#include <vector>

namespace crossmesh {

// When an iteration of a layer program does what. Times begin at 0, in seconds.
struct LayerTimeline {
  // A transfer is exposed while some rank computes nothing because a message of it is under way,
  // and hidden while its messages are under way and no rank waits for them.
  struct Exposure {
    double exposed = 0;
    double hidden = 0;
  };
  // What a rank waits before an op, with nothing to compute.
  struct Wait {
    double for_transfers = 0;  // messages that were under way
    double for_others = 0;     // messages that were not: another rank had not come so far
  };

  std::vector<TimeSpan> ops;                             // as in the program
  std::vector<std::vector<TimeSpan>> messages;           // [transfer][message]
  std::vector<Wait> waits;                               // by op
  std::vector<std::vector<Exposure>> message_exposures;  // [transfer][message]
  std::vector<Exposure> exposures;                       // by transfer: sums over its messages
  double seconds = 0;                                    // to the last end of an op
};

// What a message of each transfer takes when it has its ports to itself.
struct TransferCosts {
  std::vector<double> seconds;  // by transfer
  TransferPorts ports;          // none: it shares nothing
};

// Runs a program as workers do. An op begins when the op before it on its rank has ended, its
// inputs have arrived and its outputs have room: what lay in their buffers has left. A message is
// on its way when its op has ended and what lay in its buffer was used. Messages of a transfer go
// one after the other, and transfers share ports max-min fairly (SharedPorts).
//
// The wait before an op is dealt out among the messages that it waits for, in the order in which
// they arrive, each from where the one before it has arrived.
//
// Example: an op of 1 s gives what a next op needs, by a transfer of 2 s, and an op of 1.5 s stands
// between them. Then 1.5 s of the transfer are hidden and 0.5 s exposed, and the last op begins at
// 3 s.
//
// `program` is valid; costs are of all of its transfers. Cost: linear in messages, log of the ranks
// for every op, and the transfers that share ports for every message.
LayerTimeline SimulateLayers(const LayerProgram& program, const TransferCosts& costs);

}  // namespace crossmesh
