#pragma once

#include "common/base/fake_clock.h"
#include "common/event_loop/event_loop.h"
#include "common/plan/plan.h"
#include "worker/executor/executor_resources.h"
#include "worker/executor/task_execution.h"
#include "worker/executor/testing/executor_fixture.h"
#include "worker/executor/testing/recording_transport.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/executor/wire_message.h"
#include "worker/transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <gtest/gtest.h>

namespace crossmesh {

// One worker's task, in rounds and steps that a test counts, over a transport that only notes what
// it is asked for. Workers are as SpecOfHost says.
class ExecutionTest : public testing::Test {
 protected:
  static constexpr uint64_t kTokenHigh = 5;
  static constexpr uint64_t kTokenLow = 6;

  ExecutionTest();

  static PeerId IdOf(int32_t peer) { return PeerId(static_cast<uint64_t>(peer) + 1); }
  // Once in a test.
  TaskSpec MakeSpec(const Plan& plan, const std::string& host);
  std::vector<std::optional<PeerId>> PeerIds(const TaskSpec& spec) const;
  // The task is made, and not begun.
  void Make(TaskSpec spec);
  // It is made and begun.
  void Run(const Plan& plan, const std::string& host);

  // b.0 gets a tensor of a.0.
  static Plan OneChannel();
  // b.0 gets halves of a tensor from a.0 and c.0.
  static Plan TwoSenders();
  // b.0-1 get halves of a tensor from a.0.
  static Plan TwoReceivers();

  struct Message {
    int32_t channel = 0;  // index into PreparedPart::channels
    MessageKind kind = MessageKind::kOpening;
    uint64_t sequence = 0;
    std::vector<std::byte> payload = {};
    uint32_t instance = 0;
  };
  MessageHeader HeaderOf(const Message& message) const;
  std::unique_ptr<IncomingMessage> MessageOf(const MessageHeader& header,
                                             std::vector<std::byte> payload = {});
  void Say(const Message& message) {
    task_->OnMessage(MessageOf(HeaderOf(message), message.payload));
  }
  // All that a channel of one relay of one chunk has, of zeros.
  std::vector<Message> WholeChannel(int32_t channel, uint32_t instance = 0) const;
  void SayAll(const std::vector<Message>& messages);
  // All that was announced has come.
  void Deliver(const absl::Status& status = absl::OkStatus());
  // All that was sent has been taken, and what is sent then.
  void Take(const absl::Status& status = absl::OkStatus());
  // Of one message.
  void TakeOne(size_t message, const absl::Status& status = absl::OkStatus());
  // Of all that were sent, in order.
  std::vector<MessageKind> SentKinds() const;
  int64_t SentOf(MessageKind kind) const;

  void Rounds(int count) {
    for (int round = 0; round < count; ++round) task_->OnStallRound();
  }
  void Steps() {
    while (task_->Step()) {
    }
  }
  // Has something asked for a step since it was asked last?
  bool WantsStep();

  FakeClock clock_;
  const std::unique_ptr<EventLoop> loop_;
  RecordingTransport transport_;
  std::vector<Ticket> receiving_;
  std::vector<bool> taken_;  // of what was sent
  int64_t steps_ = 0;
  std::vector<std::pair<PeerId, absl::Status>> stalled_;
  ExecutorResources shared_;
  Reports reports_;
  std::optional<Plan> plan_;
  std::optional<TileMemory> memory_;
  std::unique_ptr<TaskExecution> task_;
};

}  // namespace crossmesh
