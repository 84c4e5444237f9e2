#pragma once

#include "planner/pipeline/event_times.h"
#include "planner/pipeline/timeline.h"
#include "planner/pipeline/transfer_model.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace crossmesh {

// A message that has arrived.
struct Arrival {
  TransferIndex transfer = 0;
  MicrobatchIndex microbatch = 0;
  TimeSpan passing;
};

// Transfers that share ports as streams of TCP do: at any time the ports' speed is divided max-min
// fairly, so that no transfer has more of it unless one with less of it has less. The messages of a
// transfer go one after the other. A transfer that has all of its ports to itself takes its own
// time. Thread-compatible.
class SharedPorts {
 public:
  // Those of each transfer, which must outlive it.
  explicit SharedPorts(const TransferPorts& ports);

  // Of a transfer that has ports, a message that takes so long if it has them to itself. Times
  // never go back.
  void Send(TransferIndex transfer, MicrobatchIndex microbatch, double seconds, double now);
  // When the next message arrives unless another one is sent before that; never: infinity.
  double next_end() const { return ends_.next(); }
  // That message. There must be one. Cost: the transfers that it shared ports with, directly or by
  // way of others.
  Arrival TakeNext();

 private:
  struct Stream {
    struct Message {
      MicrobatchIndex microbatch = 0;
      double seconds = 0;
    };
    std::vector<Message> messages;
    size_t next = 0;  // the one under way
    double begin = 0;
    double left = 0;       // of its own time, when it was last looked at,
    double looked_at = 0;  // which was then
    double speed = 0;      // of its own
    bool is_reached = false;
  };
  struct Port {
    std::vector<TransferIndex> active;
    double left = 0;      // while sharing: not given away
    int32_t sharing = 0;  // those without a speed yet
    bool is_reached = false;
  };
  void BeginNext(TransferIndex transfer, double now);
  bool IsAlone(TransferIndex transfer) const;
  void Settle(TransferIndex changed, double now);
  void ExpectEnd(TransferIndex transfer, double now);
  void Reach(TransferIndex changed);
  void Share();
  void Give(TransferIndex transfer, double speed);

  const TransferPorts& ports_;
  std::vector<Stream> streams_;  // by transfer
  std::vector<Port> port_;
  EventTimes ends_;                       // by transfer: of the message under way
  std::vector<TransferIndex> reached_;    // by a change
  std::vector<PortIndex> reached_ports_;  // likewise
};

}  // namespace crossmesh
