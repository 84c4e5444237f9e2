#include "worker/executor/peer_sender.h"

#include "worker/executor/channel_sender.h"

#include <algorithm>

namespace crossmesh {
namespace {

// Less does not keep a connection busy while the peer asks for what comes next.
constexpr int64_t kPeriodBytesMin = 2 * Plan::kLeafBytes;

}  // namespace

PeerSender::PeerSender(TaskContext& context, PeerId peer)
    : context_(context), peer_(peer), lanes_(context.shared.transport.lanes(peer)) {}

void PeerSender::Add(ChannelSender& channel, int64_t planned_bytes) {
  channels_.push_back(&channel);
  planned_bytes_ += planned_bytes;
  const WorkerPart::Spec& plan = context_.part.part().spec();
  int64_t period_bytes = plan.chunk_bytes;
  if (plan.periods > 0) {
    period_bytes = std::clamp(planned_bytes_ / plan.periods,
                              std::min(kPeriodBytesMin, plan.chunk_bytes), plan.chunk_bytes);
  }
  window_bytes_ = lanes_ * context_.shared.options.window_periods * period_bytes;
}

void PeerSender::Pump() {
  while (open_ < lanes_ * ExecutorOptions::kLaneMessagesMax && open_bytes_ < window_bytes_) {
    ChannelSender* const channel = NextInTurn();
    if (channel == nullptr) return;
    channel->SendNext();
  }
}

void PeerSender::OnSend(int64_t bytes) {
  ++open_;
  open_bytes_ += bytes;
}

void PeerSender::OnTaken(int64_t bytes) {
  --open_;
  open_bytes_ -= bytes;
}

ChannelSender* PeerSender::NextInTurn() const {
  ChannelSender* next = nullptr;
  for (ChannelSender* const channel : channels_) {
    if (channel->ready() && (next == nullptr || channel->due() < next->due())) next = channel;
  }
  return next;
}

}  // namespace crossmesh
