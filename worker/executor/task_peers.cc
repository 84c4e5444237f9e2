#include "worker/executor/task_peers.h"

#include "worker/executor/task_channels.h"
#include "worker/executor/task_context.h"

#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

TaskPeers::TaskPeers(TaskContext& context, TaskChannels& channels,
                     std::span<const std::optional<PeerId>> peer_ids)
    : context_(context), channels_(channels), peers_(peer_ids.size()) {
  for (int32_t peer = 0; peer < count(); ++peer) peers_[peer].id = peer_ids[peer];
}

void TaskPeers::Rewind() {
  for (Peer& peer : peers_) {
    peer.heard = false;
    peer.silence.OnProgress();
  }
  rounds_held_up_ = 0;
}

void TaskPeers::Begin() {
  for (int32_t peer = 0; peer < count(); ++peer) {
    if (!peers_[peer].lost.ok()) FailChannelsOf(peer, Connection::kGone);
  }
  if (!context_.spec.receivers_say_ready) return;
  for (int32_t channel = 0; channel < channels_.count(); ++channel) {
    if (!channels_.receives(channel)) continue;
    Notify(channel, MessageKind::kReady, context_.spec.key.instance);
  }
}

void TaskPeers::OnHeard(int32_t channel) { peers_[channels_.PeerOf(channel)].heard = true; }

void TaskPeers::Answer(const MessageHeader& probe, int32_t channel) {
  Notify(channel, MessageKind::kAlive, probe.instance);
}

void TaskPeers::Notify(int32_t channel, MessageKind kind, uint32_t instance) {
  const int32_t peer = channels_.PeerOf(channel);
  if (!peers_[peer].id.has_value()) return;
  ++peers_[peer].notices_open;
  const Ticket ticket = context_.AddTransfer({.kind = kind, .channel = channel});
  MessageHeader header = context_.HeaderFor(context_.part.channels()[channel], kind, 0);
  header.instance = instance;
  context_.shared.transport.Send(*peers_[peer].id, header, {}, ticket);
}

void TaskPeers::TellStopped() {
  std::vector<bool> told(peers_.size());
  for (int32_t channel = 0; channel < channels_.count(); ++channel) {
    if (!channels_.leaves(channel) || told[channels_.PeerOf(channel)]) continue;
    told[channels_.PeerOf(channel)] = true;
    Notify(channel, MessageKind::kStopped, context_.spec.key.instance);
  }
}

bool TaskPeers::IsNotice(MessageKind kind) {
  return kind == MessageKind::kProbe || kind == MessageKind::kAlive ||
         kind == MessageKind::kReady || kind == MessageKind::kStopped;
}

void TaskPeers::OnNoticeSent(Ticket ticket) {
  const int32_t channel = context_.shared.transfers.at(ticket).subject.channel;
  --peers_[channels_.PeerOf(channel)].notices_open;
  context_.RemoveTransfer(ticket);
}

void TaskPeers::OnLost(PeerId peer_id, const absl::Status& why) {
  for (int32_t peer = 0; peer < count(); ++peer) {
    if (peers_[peer].id == peer_id) Lose(peer, why, Connection::kGone);
  }
}

// What was under way comes back before the transport tells of the loss. Nothing more is sent in
// between: the task could end without naming the worker that is lost.
void TaskPeers::OnUnreachable(int32_t channel, const absl::Status& why) {
  const int32_t peer = channels_.PeerOf(channel);
  if (peers_[peer].id.has_value()) Lose(peer, why, Connection::kGone);
}

void TaskPeers::GiveUp(absl::string_view worker, const absl::Status& why) {
  for (int32_t peer = 0; peer < count(); ++peer) {
    if (peers_[peer].id.has_value() && context_.spec.peers[peer].worker == worker) {
      Lose(peer, why, Connection::kThere);
    }
  }
}

void TaskPeers::Lose(int32_t peer, const absl::Status& why, Connection connection) {
  peers_[peer].given_up = std::exchange(peers_[peer].id, std::nullopt);
  // It holds up nothing before it is given up: a sender's transfers are under way all the time.
  rounds_held_up_ = 0;
  peers_[peer].lost = absl::UnavailableError(
      absl::StrCat("worker ", context_.spec.peers[peer].worker, " is lost: ", why.message()));
  FailChannelsOf(peer, connection);
}

void TaskPeers::FailChannelsOf(int32_t peer, Connection connection) {
  const absl::Status& lost = peers_[peer].lost;
  context_.report.lost_peers.push_back(context_.spec.peers[peer].worker);
  context_.report.first_loss.Update(lost);
  channels_.Fail(peer, lost, connection == Connection::kThere);
}

void TaskPeers::OnStallRound() {
  for (int32_t channel = 0; channel < channels_.count(); ++channel) {
    const std::optional<std::string> how = channels_.StallOnRound(channel);
    if (how.has_value()) DeclareStalled(channels_.PeerOf(channel), *how);
  }
  for (int32_t peer = 0; peer < count(); ++peer) Check(peer);
  CutOffGivenUp();
}

void TaskPeers::Check(int32_t index) {
  Peer& peer = peers_[index];
  if (!peer.id.has_value()) return;
  if (std::exchange(peer.heard, false)) peer.silence.OnProgress();
  const std::optional<int32_t> expected = channels_.ExpectedFrom(index);
  if (peer.silence.OnRound(expected.has_value() || peer.notices_open > 0)) {
    DeclareStalled(index, "answers no message");
  } else if (peer.silence.rounds() > 1 && peer.notices_open == 0) {
    // One at a time: a peer that takes none answers none.
    Notify(*expected, MessageKind::kProbe, context_.spec.key.instance);
  }
}

void TaskPeers::CutOffGivenUp() {
  const bool held_up = context_.transfers_open > 0 && context_.is_settled();
  rounds_held_up_ = held_up ? rounds_held_up_ + 1 : 0;
  if (rounds_held_up_ < StallCounter::kRoundsMax) return;
  for (int32_t i = 0; i < count(); ++i) {
    Peer& peer = peers_[i];
    if (!peer.given_up.has_value()) continue;
    // It may be there and serve other tasks: only what it still holds of this one costs it the
    // connection.
    if (peer.notices_open == 0 && !channels_.HasOpenTransfers(i)) continue;
    context_.shared.on_peer_stalled(*std::exchange(peer.given_up, std::nullopt),
                                    absl::UnavailableError("given up, with transfers under way"));
  }
}

void TaskPeers::DeclareStalled(int32_t peer, absl::string_view how) {
  if (!peers_[peer].id.has_value()) return;
  context_.shared.counters.stalls++;
  context_.shared.on_peer_stalled(
      *peers_[peer].id,
      absl::UnavailableError(absl::StrCat("stalled, it ", how, " for ",
                                          absl::FormatDuration(context_.spec.stall_limit))));
}

}  // namespace crossmesh
