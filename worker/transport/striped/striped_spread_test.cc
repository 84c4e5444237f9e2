// How messages are spread over lanes, by in-process transports with one slow link.

#include "common/base/check.h"
#include "common/testing/status_matchers.h"
#include "worker/transport/striped/striped_transport.h"
#include "worker/transport/testing/inprocess_transport.h"

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// A transport of one NIC that sends to one of two, step by step.
class SpreadTest : public testing::Test {
 protected:
  static constexpr int kMessages = 2000;
  static constexpr int kWindow = 16;

  // Sends for as long as there is something to send; receives what comes.
  class Sender final : public TransportSink {
   public:
    explicit Sender(std::vector<std::byte>& payload) : pieces_{PieceOf(payload)} {}
    void Start(Transport& transport, PeerId peer) {
      transport_ = &transport;
      peer_ = peer;
      for (int i = 0; i < kWindow; ++i) Send();
    }
    int done = 0;

   private:
    void OnMessage(std::unique_ptr<IncomingMessage> /*message*/) override {}
    void OnSent(Ticket /*ticket*/, const absl::Status& status) override {
      EXPECT_OK(status);
      ++done;
      if (sent_ < kMessages) Send();
    }
    void OnReceived(Ticket /*ticket*/, const absl::Status& /*status*/) override {}
    void OnPeerLost(PeerId /*peer*/, const absl::Status& status) override { EXPECT_OK(status); }
    void Send() { transport_->Send(peer_, {}, pieces_, static_cast<Ticket>(sent_++)); }

    const std::vector<iovec> pieces_;
    Transport* transport_ = nullptr;
    PeerId peer_;
    int sent_ = 0;
  };

  // Stands before the sink of a NIC and counts what came in there.
  class Counter final : public TransportSink {
   public:
    Counter(TransportSink& sink, int& messages) : sink_(sink), messages_(messages) {}

   private:
    void OnMessage(std::unique_ptr<IncomingMessage> message) override {
      ++messages_;
      sink_.OnMessage(std::move(message));
    }
    void OnSent(Ticket ticket, const absl::Status& status) override {
      sink_.OnSent(ticket, status);
    }
    void OnReceived(Ticket ticket, const absl::Status& status) override {
      sink_.OnReceived(ticket, status);
    }
    void OnPeerLost(PeerId peer, const absl::Status& status) override {
      sink_.OnPeerLost(peer, status);
    }
    TransportSink& sink_;
    int& messages_;
  };

  class Receiver final : public TransportSink {
   private:
    void OnMessage(std::unique_ptr<IncomingMessage> message) override {
      into_.resize(message->header().payload_bytes);
      pieces_ = {PieceOf(into_)};
      message->Receive(pieces_, 0);
    }
    void OnSent(Ticket /*ticket*/, const absl::Status& /*status*/) override {}
    void OnReceived(Ticket /*ticket*/, const absl::Status& status) override { EXPECT_OK(status); }
    void OnPeerLost(PeerId /*peer*/, const absl::Status& status) override { EXPECT_OK(status); }
    std::vector<std::byte> into_;
    std::vector<iovec> pieces_;
  };

  // How many of kMessages the two NICs received, the second by a link with `faults`.
  std::vector<int> Run(const FaultPlan& faults) {
    InProcessFabric fabric;
    std::vector<int> counts(2);
    std::vector<std::unique_ptr<Counter>> counters;
    std::vector<std::string> addresses;
    std::vector<StripedTransport::MakeNic> makers;
    for (size_t i = 0; i < counts.size(); ++i) {
      makers.emplace_back([&, i](TransportSink& sink) {
        counters.push_back(std::make_unique<Counter>(sink, counts[i]));
        auto transport = InProcessTransport::Create(fabric, *counters.back());
        addresses.push_back((*transport)->address());
        return transport;
      });
    }
    Sender sender(payload_);
    Receiver receiver;
    const std::array one = {StripedTransport::MakeNic([&](TransportSink& sink) {
      auto transport = InProcessTransport::Create(fabric, sink);
      addresses.push_back((*transport)->address());
      return transport;
    })};
    const auto to = StripedTransport::Create(receiver, makers);
    const auto from = StripedTransport::Create(sender, one);
    CHECK_OK(to);
    CHECK_OK(from);
    fabric.SetFaults(addresses[2], addresses[1], faults);
    sender.Start(**from, *(*from)->Connect((*to)->address()));
    while (sender.done < kMessages) {
      (*from)->Progress();
      (*to)->Progress();
    }
    return counts;
  }

  std::vector<std::byte> payload_ = std::vector<std::byte>(10000);
};

TEST_F(SpreadTest, EqualLanesCarryTheSame) {
  const std::vector<int> counts = Run({});
  EXPECT_EQ(counts[0] + counts[1], kMessages);
  EXPECT_NEAR(counts[0], kMessages / 2, kMessages / 20);
}

TEST_F(SpreadTest, ASlowLaneCarriesWhatItCan) {
  const std::vector<int> counts = Run({.seed = 3, .delay_probability = 1, .delay_polls_max = 8});
  EXPECT_EQ(counts[0] + counts[1], kMessages);
  EXPECT_GT(counts[0], 2 * counts[1]);
  EXPECT_GT(counts[1], kMessages / 50);
}

TEST_F(SpreadTest, ALaneThatStandsStillDoesNotHoldUpTheOther) {
  // Its window stays full, and nothing else goes there.
  const std::vector<int> counts =
      Run({.seed = 3, .delay_probability = 1, .delay_polls_max = 200'000});
  EXPECT_EQ(counts[0] + counts[1], kMessages);
  EXPECT_LE(counts[1], kWindow);
}

TEST_F(SpreadTest, SmallMessagesAreSpreadAsWell) {
  payload_.resize(1);
  EXPECT_NEAR(Run({})[0], kMessages / 2, kMessages / 20);
}

}  // namespace
}  // namespace crossmesh
