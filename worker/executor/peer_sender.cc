#include "worker/executor/peer_sender.h"

#include "worker/executor/channel_sender.h"
#include "worker/executor/task_execution.h"

#include <algorithm>
#include <utility>

namespace crossmesh {
namespace {

// Less does not keep a connection busy while the peer asks for what comes next.
constexpr int64_t kPeriodBytesMin = 2 * Plan::kLeafBytes;

}  // namespace

PeerSender::PeerSender(TaskContext& context, PeerId peer, TaskHost& host)
    : context_(context),
      host_(host),
      peer_(peer),
      lanes_(context.shared.transport.lanes(peer)),
      least_run_(absl::Nanoseconds(context.part.part().spec().least_run_ns)) {}

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

void PeerSender::Rewind() {
  sent_bytes_ = 0;
  busy_ = {};
  begin_.reset();
  pump_asked_ = false;  // the timer names the instance before
  first_alone_ = false;
}

void PeerSender::Pump() {
  while (!first_alone_ && open_ < lanes_ * ExecutorOptions::kLaneMessagesMax &&
         open_bytes_ < window_bytes_) {
    ChannelSender* const channel = NextInTurn();
    if (channel == nullptr || !KeepsPace()) return;
    const bool idle = open_bytes_ == 0;
    channel->SendNext();
    if (idle && open_bytes_ > 0 && sent_bytes_ < planned_bytes_) {
      first_alone_ = true;
      host_.RequestStep();
    }
  }
}

void PeerSender::Step() {
  if (std::exchange(first_alone_, false)) Pump();
}

void PeerSender::PumpAsAsked() {
  pump_asked_ = false;
  Pump();
}

bool PeerSender::KeepsPace() {
  if (least_run_ == absl::ZeroDuration()) return true;
  const Clock::time_point now = Clock::now();
  if (!begin_.has_value()) begin_ = now;
  const double share = static_cast<double>(sent_bytes_) / static_cast<double>(planned_bytes_);
  const absl::Duration left = share * least_run_ - absl::FromChrono(now - *begin_);
  if (left <= absl::ZeroDuration()) return true;
  if (!std::exchange(pump_asked_, true)) host_.PumpAfter(left, context_.task, peer_);
  return false;
}

void PeerSender::OnSend(int64_t bytes) {
  if (open_++ == 0) open_since_ = Clock::now();
  open_bytes_ += bytes;
  sent_bytes_ += bytes;
}

void PeerSender::OnTaken(int64_t bytes) {
  if (--open_ == 0) busy_ += Clock::now() - open_since_;
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
