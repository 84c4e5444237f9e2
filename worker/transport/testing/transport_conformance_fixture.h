// The fixture of transport_conformance.h.

#pragma once

#include "common/testing/status_matchers.h"
#include "worker/transport/testing/transport_node.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {

struct TransportUnderTest {
  std::string name;
  // A new network; its transports are made and destroyed during one test.
  std::function<MakeTransport()> make_network;

  static std::string Name(const testing::TestParamInfo<TransportUnderTest>& info) {
    return info.param.name;
  }
  friend void PrintTo(const TransportUnderTest& under_test, std::ostream* out) {
    *out << under_test.name;
  }
};

class TransportConformanceTest : public testing::TestWithParam<TransportUnderTest> {
 protected:
  using Arrival = TransportNode::Arrival;
  static constexpr int64_t kLarge = 1 << 20;  // more than any transport sends eagerly

  TransportNode& AddNode(Arrival arrival = Arrival::kReceive) {
    absl::StatusOr<std::unique_ptr<TransportNode>> node =
        TransportNode::Create(make_transport_, arrival);
    EXPECT_OK(node.status());
    nodes_.push_back(*std::move(node));
    return *nodes_.back();
  }

  void Destroy(TransportNode& node) {
    std::erase_if(nodes_, [&](const auto& other) { return other.get() == &node; });
  }

  static PeerId Connect(TransportNode& from, TransportNode& to) {
    absl::StatusOr<PeerId> peer = from.Connect(to.address());
    EXPECT_OK(peer.status());
    return peer.value_or(PeerId(0));
  }

  // Connects and waits until messages pass.
  static PeerId Warm(TransportNode& from, TransportNode& to) {
    const PeerId peer = Connect(from, to);
    const size_t before = to.record().announced.size();
    from.Send(peer, {.channel = kWarmChannel}, {});
    EXPECT_TRUE(WaitAnnounced(to, before + 1));
    return peer;
  }

  static bool WaitAnnounced(TransportNode& node, size_t count) {
    return node.WaitUntil([&](const auto& record) { return record.announced.size() >= count; });
  }
  static bool WaitReceived(TransportNode& node, size_t count) {
    return node.WaitUntil([&](const auto& record) { return record.received.size() >= count; });
  }
  static bool WaitSent(TransportNode& node, size_t count) {
    return node.WaitUntil([&](const auto& record) { return record.sent.size() >= count; });
  }
  static bool WaitLost(TransportNode& node, PeerId peer) {
    return node.WaitUntil([&](const auto& record) {
      return std::any_of(record.lost.begin(), record.lost.end(),
                         [&](const auto& lost) { return lost.peer == peer; });
    });
  }

  // Messages 0, 1, ... `count` - 1 were announced, each once.
  static void ExpectSequences(TransportNode& node, size_t count, bool in_order) {
    std::vector<uint64_t> sequences;
    for (const MessageHeader& header : node.record().announced) {
      sequences.push_back(header.sequence);
    }
    if (!in_order) std::ranges::sort(sequences);
    std::vector<uint64_t> expected(count);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(sequences, expected);
  }

  void TearDown() override {
    for (const auto& node : nodes_) {
      EXPECT_THAT(node->record().violations, testing::IsEmpty());
      EXPECT_TRUE(node->FailedDestinationsUntouched());
    }
  }

  static constexpr uint32_t kWarmChannel = 99;
  std::mt19937_64 random_{20240607};

 private:
  const MakeTransport make_transport_ = GetParam().make_network();
  std::vector<std::unique_ptr<TransportNode>> nodes_;
};

}  // namespace crossmesh
