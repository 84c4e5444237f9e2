#include "worker/executor/peer_sender.h"

#include "worker/executor/channel_sender.h"

#include <algorithm>

namespace crossmesh {
namespace {

// Less does not keep a connection busy while the peer asks for what comes next.
constexpr int64_t kWindowBytesMin = 4 * Plan::kLeafBytes;

}  // namespace

PeerSender::PeerSender(TaskContext& context, PeerId peer) : context_(context), peer_(peer) {}

void PeerSender::Add(ChannelSender& channel, int64_t planned_bytes) {
  channels_.push_back(&channel);
  planned_bytes_ += planned_bytes;
  const WorkerPart::Spec& plan = context_.part.part().spec();
  const int64_t most = context_.shared.options.window_periods * plan.chunk_bytes;
  window_bytes_ = most;
  if (plan.periods > 0) {
    const int64_t periods = context_.shared.options.window_periods * planned_bytes_ / plan.periods;
    window_bytes_ = std::clamp(periods, std::min(kWindowBytesMin, most), most);
  }
}

void PeerSender::Pump() {
  while (open_ < ExecutorOptions::kPeerMessagesMax && open_bytes_ < window_bytes_) {
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
