#pragma once

#include "tests/simulation/simulated_node.h"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

class SimulatedNetwork;

// A call between two processes, over a connection of TCP: what one side says reaches the other one
// in order, or the call breaks, for each side when it notices. Side 0 has made the call.
class SimulatedStream : public std::enable_shared_from_this<SimulatedStream> {
 public:
  using OnEnd = std::function<void(const absl::Status&)>;

  SimulatedStream(SimulatedNetwork& network, uint64_t number, SimulatedNode& client,
                  SimulatedNode& server);

  // Runs `deliver` in the process of the other side, unless the call ends before. `label` is a
  // constant.
  void Send(int side, absl::string_view label, std::function<void()> deliver);
  // How this side hears the end, when it has not ended the call itself.
  void Hear(int side, OnEnd on_end) { ends_[side].on_end = std::move(on_end); }
  // Ends the call at this side at once; the other one hears of it in order.
  void End(int side, const absl::Status& status);
  uint64_t number() const { return number_; }
  bool is_open(int side) const { return ends_[side].is_open; }
  SimulatedNode& node(int side) const { return *ends_[side].node; }

 private:
  friend class SimulatedNetwork;
  struct Side {
    SimulatedNode* node = nullptr;
    int64_t life = 0;
    OnEnd on_end;
    bool is_open = true;
    absl::Duration last_arrival;  // at this side
  };

  // This side finds the call broken.
  void Break(int side, const absl::Status& status);
  void Close(int side);

  SimulatedNetwork& network_;
  const uint64_t number_;
  std::array<Side, 2> ends_;
};

// The network between nodes: slow, lossy, and cut where it is told to be. Loss delays, as TCP sends
// again; a direction that is clogged holds what is sent, and what has not come through, nor
// answered pings, for a while breaks calls.
class SimulatedNetwork {
 public:
  // Without an answer to a ping a side gives the connection up.
  static constexpr absl::Duration kKeepalive = absl::Seconds(8);

  explicit SimulatedNetwork(SimulatedWorld& world) : world_(world) {}
  // Nobody hears the end of what is open.
  ~SimulatedNetwork();

  // `accept` runs in the server's process, if there is one, else the call ends as Unavailable.
  std::shared_ptr<SimulatedStream> Open(
      SimulatedNode& client, SimulatedNode& server,
      std::function<void(const std::shared_ptr<SimulatedStream>&)> accept);

  // A message by itself, which may be lost when its direction is clogged, and with the process.
  void Carry(SimulatedNode& from, SimulatedNode& to, std::function<void()> deliver);

  void Clog(int from, int to);
  void Unclog(int from, int to);
  void UnclogAll();
  bool IsClogged(int from, int to) const { return clogged_.contains({from, to}); }
  // Everywhere.
  void SetDelay(absl::Duration delay) { delay_ = delay; }
  void SetLoss(double probability) { loss_ = probability; }

  // The process has ended: its host resets its connections.
  void Reset(const SimulatedNode& node);
  // The process is paused from now on: peers notice.
  void WatchPaused(const SimulatedNode& node);

  int64_t open_streams() const { return static_cast<int64_t>(streams_.size()); }

 private:
  friend class SimulatedStream;
  using Direction = std::pair<int, int>;
  struct Clogging {
    absl::Duration since;
    std::vector<std::function<void()>> held;
  };

  absl::Duration Latency();
  // `arrive` runs when it has come through.
  template <typename Action>
  void Transmit(const std::shared_ptr<SimulatedStream>& stream, int from, Action arrive);
  template <typename Action>
  void Arrive(Direction direction, Action arrive);
  bool IsCut(const SimulatedStream& stream, absl::Duration since) const;
  void CheckLater(const std::shared_ptr<SimulatedStream>& stream);
  // Both sides that run find it broken.
  void BreakStream(const std::shared_ptr<SimulatedStream>& stream);
  std::vector<std::shared_ptr<SimulatedStream>> StreamsOf(const SimulatedNode& node) const;

  SimulatedWorld& world_;
  std::map<Direction, Clogging> clogged_;
  absl::Duration delay_;
  double loss_ = 0;
  uint64_t numbers_ = 0;
  std::map<uint64_t, std::shared_ptr<SimulatedStream>> streams_;
};

}  // namespace crossmesh
