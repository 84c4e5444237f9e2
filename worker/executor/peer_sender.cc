#include "worker/executor/peer_sender.h"

#include "common/event_loop/event_loop.h"
#include "common/plan/plan.h"

#include <algorithm>
#include <utility>

namespace crossmesh {
namespace {

// Less does not keep a connection busy while the peer asks for what comes next.
constexpr int64_t kPeriodBytesMin = 2 * Plan::kLeafBytes;

}  // namespace

PeerSender::Turn::Turn(PeerSender& peer, int32_t channel_index)
    : sender(peer), channel(peer.context_, channel_index, peer.window_, *this) {}

void PeerSender::Turn::OnStagingFree() {
  channel.OnStagingFree();
  sender.Pump();
}

PeerSender::PeerSender(TaskContext& context, PeerId peer)
    : context_(context),
      lanes_(context.shared.transport.lanes(peer)),
      window_(peer),
      least_run_(absl::Nanoseconds(context.part.part().spec().least_run_ns)) {}

PeerSender::~PeerSender() {
  if (pace_timer_.has_value()) context_.shared.loop.Cancel(*pace_timer_);
}

ChannelSender& PeerSender::Add(int32_t channel) {
  ChannelSender& sender = turns_.emplace_back(std::make_unique<Turn>(*this, channel))->channel;
  planned_bytes_ += sender.planned_bytes();
  const WorkerPart::Spec& plan = context_.part.part().spec();
  // What the plan sends to this peer in a period, on average; without periods a chunk.
  int64_t period_bytes = plan.chunk_bytes;
  if (plan.periods > 0) {
    period_bytes = std::clamp(planned_bytes_ / plan.periods,
                              std::min(kPeriodBytesMin, plan.chunk_bytes), plan.chunk_bytes);
  }
  window_bytes_ = lanes_ * context_.shared.options.window_periods * period_bytes;
  return sender;
}

void PeerSender::Rewind() {
  window_.Rewind();
  begin_.reset();
  // A timer is of the instance before.
  if (pace_timer_.has_value()) context_.shared.loop.Cancel(*pace_timer_);
  pace_timer_.reset();
  first_alone_ = false;
  for (const auto& turn : turns_) turn->channel.Rewind();
}

void PeerSender::Pump() {
  while (!first_alone_ && window_.open() < lanes_ * ExecutorOptions::kLaneMessagesMax &&
         window_.open_bytes() < window_bytes_) {
    ChannelSender* const channel = NextInTurn();
    if (channel == nullptr || !KeepsPace()) return;
    const bool idle = window_.open_bytes() == 0;
    channel->SendNext();
    if (idle && window_.open_bytes() > 0 && window_.sent_bytes() < planned_bytes_) {
      first_alone_ = true;
      context_.shared.steps.Request();
    }
  }
}

void PeerSender::Step() {
  if (std::exchange(first_alone_, false)) Pump();
}

bool PeerSender::KeepsPace() {
  if (least_run_ == absl::ZeroDuration()) return true;
  const Clock::time_point now = Clock::now();
  // The time runs from the first chunk that could be sent, not from the start of the task.
  if (!begin_.has_value()) begin_ = now;
  const double share =
      static_cast<double>(window_.sent_bytes()) / static_cast<double>(planned_bytes_);
  const absl::Duration left = share * least_run_ - absl::FromChrono(now - *begin_);
  if (left <= absl::ZeroDuration()) return true;
  if (!pace_timer_.has_value()) {
    pace_timer_ = context_.shared.loop.RunAfter(left, [this] {
      pace_timer_.reset();
      Pump();
    });
  }
  return false;
}

ChannelSender* PeerSender::NextInTurn() const {
  ChannelSender* next = nullptr;
  for (const auto& turn : turns_) {
    ChannelSender& channel = turn->channel;
    if (channel.ready() && (next == nullptr || channel.due() < next->due())) next = &channel;
  }
  return next;
}

}  // namespace crossmesh
