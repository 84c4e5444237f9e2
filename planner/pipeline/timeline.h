#pragma once

#include "planner/pipeline/op_table.h"
#include "planner/pipeline/transfer_model.h"

#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

struct TimeSpan {
  double begin = 0;
  double end = 0;

  friend bool operator==(const TimeSpan&, const TimeSpan&) = default;
};

// When an iteration does what. Times begin at 0.
struct PipelineTimeline {
  std::vector<TimeSpan> ops;       // by number in the table
  std::vector<TimeSpan> messages;  // by number in the table; nothing within a rank
  double seconds = 0;              // from the first begin to the last end of an op
  // The longest from the first begin to the last end on one rank: what an iteration costs where
  // the next one need not wait for all ranks.
  double span_seconds = 0;
};

// By message: the one before it, of the same transfer, whose place in memory it takes at either
// end; OpTable::kNone: it has a place of its own. Empty: all messages have.
using MessagePlaces = std::vector<MessageIndex>;

// Runs a schedule: an op begins when the one before it on its rank has ended and its inputs are
// there; fused ones begin and end at once; a transfer is asked for when its producer ends, and
// begins when its ports are free.
//
// Ports serve in the order in which they are asked; at one time, in the order in which the
// producers began, then by rank. Under kPorts they serve all transfers at once, each of which takes
// longer the more share its ports, as SharedPorts says. Under kBlocking the ranks keep to one order
// of all ops and transfers: that of their times, begin of the op or end of the producer, if
// transfers took none; then transfers first; then by rank and place.
//
// Where messages take the places of others, an op begins only when those whose places its outputs
// take have left, and a transfer is asked for only when the one whose place it takes was used.
// kBlocking takes no places, since it has no messages that wait.
//
// InvalidArgument when an op waits for itself, as ProveOrder; under kBlocking also when one with an
// output to transfer takes no time. ResourceExhausted when ranks wait for places for ever. Cost:
// linear, and log of the ranks for every op where there are ports; under kPorts also the transfers
// that share ports, for every message.
absl::StatusOr<PipelineTimeline> SimulatePipeline(const OpTable& ops, TransferModel model,
                                                  const MessagePlaces& places = {});

// The part of the ranks' time in which they compute nothing: 1 - work / (ranks * seconds); 0 of no
// time.
double BubbleRatio(const OpTable& ops, const PipelineTimeline& run);

}  // namespace crossmesh
