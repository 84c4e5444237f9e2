#pragma once

#include "common/base/event_fd.h"
#include "tests/simulation/simulated_network.h"
#include "worker/transport/transport.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

class SimulatedTransport;

// What the transports of all processes have in common.
class SimulatedFabric {
 public:
  explicit SimulatedFabric(SimulatedNetwork& network) : network_(network) {}

  // Of each payload: that one of its bits is flipped on the way.
  void SetFlips(double probability) { flips_ = probability; }

 private:
  friend class SimulatedTransport;
  struct Connection;

  SimulatedNetwork& network_;
  double flips_ = 0;
  std::map<std::string, SimulatedTransport*> transports_;  // by address, of processes that are up
  std::vector<std::shared_ptr<Connection>> half_open_;     // that one side has made
};

// The data plane of a process over the simulated network: messages are announced in order, and a
// payload leaves the sender's memory when the receiver asks for it (rendezvous).
class SimulatedTransport final : public Transport {
 public:
  // Its address is the node's name and life.
  SimulatedTransport(SimulatedFabric& fabric, SimulatedNode& node, TransportSink& sink);
  ~SimulatedTransport() override;

  absl::string_view name() const override { return "inprocess"; }
  const std::string& address() const override { return address_; }
  int64_t eager_bytes_max() const override { return 0; }
  // So few that staging is used.
  int pieces_max() const override { return 1; }
  int useful_pieces_max(PeerId /*peer*/) const override { return 1; }
  absl::StatusOr<PeerId> Connect(absl::string_view address) override;
  absl::string_view link(PeerId /*peer*/) const override { return "local"; }
  void Send(PeerId peer, const MessageHeader& header, Pieces payload, Ticket ticket) override;
  void Disconnect(PeerId peer) override;
  void Break(PeerId peer, const absl::Status& why) override;

  int Progress() override;
  int event_fd() const override { return event_fd_.fd(); }

 private:
  friend class SimulatedFabric;
  using Connection = SimulatedFabric::Connection;
  struct Transfer;
  class Message;
  struct Peer {
    std::shared_ptr<Connection> connection;
    int side = 0;
  };

  // What the sink is told by the next Progress.
  void Tell(std::function<void()> told) { told_.push_back(std::move(told)); }
  void Attach(const std::shared_ptr<Connection>& connection, int side);
  void OnEnd(const std::shared_ptr<Connection>& connection, int side, const absl::Status& status);
  // Completes what is outstanding at this side.
  void CompleteAll(Connection& connection, int side, const absl::Status& status);
  void Take(const std::shared_ptr<Transfer>& transfer, Pieces into, Ticket ticket);
  void PutInPlace(const std::shared_ptr<Transfer>& transfer, const std::string& bytes);
  void FinishSend(const std::shared_ptr<Transfer>& transfer, const absl::Status& status);

  SimulatedFabric& fabric_;
  SimulatedNode& node_;
  TransportSink& sink_;
  const std::string address_;
  const EventFd event_fd_;
  std::map<PeerId, Peer> peers_;
  uint64_t peers_made_ = 0;
  std::vector<std::weak_ptr<Connection>> connections_;  // of which this is a side
  std::deque<std::function<void()>> told_;
};

}  // namespace crossmesh
