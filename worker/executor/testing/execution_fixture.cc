#include "worker/executor/testing/execution_fixture.h"

#include "common/base/check.h"
#include "common/plan/testing/chain_plan.h"
#include "worker/executor/leaf_checksum.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/task_check.h"
#include "worker/executor/testing/bare_task.h"
#include "worker/transport/pieces.h"

#include <algorithm>
#include <span>

namespace crossmesh {
namespace {

// Room for five leaves in each direction.
constexpr int64_t kStagingBytes = 5 * StagingPool::kUnitBytes;

std::unique_ptr<EventLoop> MakeLoop(const Clock& clock) {
  auto loop = EventLoop::Create(clock, {.spin = absl::ZeroDuration()});
  CHECK_OK(loop);
  return *std::move(loop);
}

StagingPool MakePool() {
  auto pool = StagingPool::Create("staging", kStagingBytes);
  CHECK_OK(pool);
  return *std::move(pool);
}

// Has come at once where it is received, and has to be said to have.
class FakeMessage final : public IncomingMessage {
 public:
  FakeMessage(const MessageHeader& header, std::vector<std::byte> payload,
              std::vector<Ticket>& receiving)
      : header_(header), payload_(std::move(payload)), receiving_(receiving) {}
  const MessageHeader& header() const override { return header_; }
  void Receive(Pieces into, Ticket ticket) override {
    const iovec piece = PieceOf(payload_);
    CopyPieces(Pieces(&piece, 1), into);
    receiving_.push_back(ticket);
  }

 private:
  const MessageHeader header_;
  const std::vector<std::byte> payload_;
  std::vector<Ticket>& receiving_;
};

template <typename T>
std::vector<std::byte> BytesOf(const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

ExecutionTest::ExecutionTest()
    : loop_(MakeLoop(clock_)),
      shared_{.loop = *loop_,
              .transport = transport_,
              .options = {},
              .on_peer_stalled =
                  [this](PeerId peer, const absl::Status& why) {
                    stalled_.emplace_back(peer, why);
                    task_->OnPeerLost(peer, why);
                  },
              .steps = StepRequests(*loop_, [this] { ++steps_; }),
              .send_staging = MakePool(),
              .receive_staging = MakePool()} {}

TaskSpec ExecutionTest::MakeSpec(const Plan& plan, const std::string& host) {
  plan_.emplace(plan);
  memory_.emplace(*plan_);
  return SpecOfHost(*plan_, host, *memory_);
}

std::vector<std::optional<PeerId>> ExecutionTest::PeerIds(const TaskSpec& spec) const {
  std::vector<std::optional<PeerId>> ids(spec.peers.size());
  const std::vector<bool> needed = NeededPeers(spec);
  for (int32_t peer = 0; peer < std::ssize(ids); ++peer) {
    if (needed[peer]) ids[peer] = IdOf(peer);
  }
  return ids;
}

void ExecutionTest::Make(TaskSpec spec) {
  const std::vector<std::optional<PeerId>> ids = PeerIds(spec);
  task_ = std::make_unique<TaskExecution>(std::move(spec), ids, shared_, reports_);
}

void ExecutionTest::Run(const Plan& plan, const std::string& host) {
  Make(MakeSpec(plan, host));
  task_->Begin();
}

Plan ExecutionTest::OneChannel() {
  return ChainPlan(TensorOf("[8]: x=1 on a.0 [-] -> x=1 on b.0 [-]"), {"a.0 > b.0"});
}

Plan ExecutionTest::TwoSenders() {
  return ChainPlan(TensorOf("[8]: x=2 on a.0,c.0 [x] -> x=1 on b.0 [-]"),
                   {"a.0 > b.0", "c.0 > b.0"});
}

Plan ExecutionTest::TwoReceivers() {
  return ChainPlan(TensorOf("[8]: x=1 on a.0 [-] -> x=2 on b.0-1 [x]"), {"a.0 > b.0", "a.0 > b.1"});
}

MessageHeader ExecutionTest::HeaderOf(const Message& message) const {
  return {.token_high = kTokenHigh,
          .token_low = kTokenLow,
          .operation = 1,
          .epoch = 1,
          .instance = message.instance,
          .channel = static_cast<uint32_t>(task_->spec().part->channels()[message.channel].id),
          .kind = static_cast<uint32_t>(message.kind),
          .sequence = message.sequence,
          .payload_bytes = message.payload.size()};
}

std::unique_ptr<IncomingMessage> ExecutionTest::MessageOf(const MessageHeader& header,
                                                          std::vector<std::byte> payload) {
  return std::make_unique<FakeMessage>(header, std::move(payload), receiving_);
}

std::vector<ExecutionTest::Message> ExecutionTest::WholeChannel(int32_t channel,
                                                                uint32_t instance) const {
  const PreparedPart& part = *task_->spec().part;
  const PreparedPart::Entry& entry = part.entries(part.channels()[channel])[0];
  const OpeningPayload opening{
      .order = part.channels()[channel].order, .chunk_bytes = part.chunk_bytes(), .checksums = 1};
  const std::vector<std::byte> zeros(part.nodes()[entry.to_node].bytes());
  const uint64_t checksum = ChecksumOfLeaves(std::vector<uint64_t>{HashLeaf(zeros)});
  return {{channel, MessageKind::kOpening, 0, BytesOf(opening), instance},
          {channel, MessageKind::kChunk, 1, zeros, instance},
          {channel, MessageKind::kChecksum, 2, BytesOf(checksum), instance}};
}

void ExecutionTest::SayAll(const std::vector<Message>& messages) {
  for (const Message& message : messages) Say(message);
  Deliver();
}

void ExecutionTest::Deliver(const absl::Status& status) {
  for (const Ticket ticket : std::exchange(receiving_, {})) {
    task_->OnReceived(ticket, status);
  }
}

void ExecutionTest::Take(const absl::Status& status) {
  // By index, since more may be sent meanwhile.
  for (size_t i = 0; i < transport_.sent.size(); ++i) {
    taken_.resize(transport_.sent.size());
    if (!taken_[i]) TakeOne(i, status);
  }
}

void ExecutionTest::TakeOne(size_t message, const absl::Status& status) {
  taken_.resize(transport_.sent.size());
  taken_[message] = true;
  const Ticket ticket = transport_.sent[message].ticket;
  shared_.transfers.at(ticket).owner->OnSent(ticket, status);
}

std::vector<MessageKind> ExecutionTest::SentKinds() const {
  std::vector<MessageKind> kinds;
  for (const RecordingTransport::Sent& sent : transport_.sent) {
    kinds.push_back(static_cast<MessageKind>(sent.header.kind));
  }
  return kinds;
}

int64_t ExecutionTest::SentOf(MessageKind kind) const {
  const std::vector<MessageKind> kinds = SentKinds();
  return std::ranges::count(kinds, kind);
}

bool ExecutionTest::WantsStep() {
  const int64_t before = steps_;
  loop_->RunOnce(absl::ZeroDuration());
  return steps_ > before;
}

}  // namespace crossmesh
