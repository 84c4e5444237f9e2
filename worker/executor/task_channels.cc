#include "worker/executor/task_channels.h"

#include "worker/executor/channel_receiver.h"
#include "worker/executor/channel_sender.h"
#include "worker/executor/peer_sender.h"
#include "worker/executor/task_context.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

TaskChannels::TaskChannels(TaskContext& context, std::span<const std::optional<PeerId>> peer_ids)
    : context_(context),
      peers_(peer_ids.size()),
      senders_(context.part.channels().size()),
      receivers_(context.part.channels().size()) {
  for (int32_t i = 0; i < count(); ++i) {
    const PreparedPart::Channel& channel = context.part.channels()[i];
    if (channel.reach == PreparedPart::Reach::kLocal) continue;
    const int32_t peer = context.PeerOf(*channel.remote_end());
    if (channel.reach == PreparedPart::Reach::kIn) {
      receivers_[i] = std::make_unique<ChannelReceiver>(context, i, *peer_ids[peer]);
    } else {
      PeerSender& sender = SenderTo(peer, *peer_ids[peer]);
      senders_[i] = {.channel = &sender.Add(i), .peer = &sender};
    }
  }
  ReserveTransfers(peer_ids);
}

TaskChannels::~TaskChannels() = default;

PeerSender& TaskChannels::SenderTo(int32_t peer, PeerId id) {
  if (peers_[peer] == nullptr) peers_[peer] = std::make_unique<PeerSender>(context_, id);
  return *peers_[peer];
}

// Sends and receives of chunks that may be under way at once, with every channel's opening and
// closing.
void TaskChannels::ReserveTransfers(std::span<const std::optional<PeerId>> peer_ids) const {
  const Transport& transport = context_.shared.transport;
  size_t count = 2 * receivers_.size();
  int pieces_max = 0;
  for (const std::optional<PeerId>& id : peer_ids) {
    if (!id.has_value()) continue;
    count += 2 * transport.lanes(*id) * ExecutorOptions::kLaneMessagesMax;
    pieces_max = std::max(pieces_max, transport.useful_pieces_max(*id));
  }
  context_.shared.transfers.Reserve(count, pieces_max);
}

void TaskChannels::Rewind() {
  for (const auto& peer : peers_) {
    if (peer != nullptr) peer->Rewind();
  }
  for (const auto& receiver : receivers_) {
    if (receiver != nullptr) receiver->Rewind();
  }
}

void TaskChannels::Pump() {
  for (const auto& peer : peers_) {
    if (peer != nullptr) peer->Pump();
  }
}

void TaskChannels::Step() {
  for (const auto& peer : peers_) {
    if (peer != nullptr) peer->Step();
  }
}

bool TaskChannels::finished() const {
  for (int32_t i = 0; i < count(); ++i) {
    if (senders_[i].channel != nullptr && !senders_[i].channel->finished()) return false;
    if (receivers_[i] != nullptr && !receivers_[i]->finished()) return false;
  }
  return true;
}

std::optional<int32_t> TaskChannels::Find(uint32_t id) const {
  const std::optional<int32_t> channel = context_.part.FindChannel(static_cast<ChannelIndex>(id));
  if (!channel.has_value() ||
      context_.part.channels()[*channel].reach == PreparedPart::Reach::kLocal) {
    return std::nullopt;
  }
  return channel;
}

int32_t TaskChannels::PeerOf(int32_t channel) const {
  return context_.PeerOf(*context_.part.channels()[channel].remote_end());
}

void TaskChannels::OnMessage(int32_t channel, std::unique_ptr<IncomingMessage> message) {
  if (receivers_[channel] != nullptr) {
    receivers_[channel]->OnMessage(std::move(message));
  } else if (static_cast<MessageKind>(message->header().kind) == MessageKind::kReady) {
    OnReady(channel);
  } else {
    context_.shared.counters.messages_dropped++;
  }
}

void TaskChannels::OnReady(int32_t channel) {
  if (senders_[channel].channel == nullptr) return;
  senders_[channel].channel->OnReady();
  senders_[channel].peer->Pump();
}

void TaskChannels::OnSent(Ticket ticket, const absl::Status& status) {
  const Sending& sending = senders_[context_.shared.transfers.at(ticket).subject.channel];
  sending.channel->OnSent(ticket, status);
  sending.peer->Pump();
}

void TaskChannels::OnReceived(Ticket ticket, const absl::Status& status) {
  receivers_[context_.shared.transfers.at(ticket).subject.channel]->OnReceived(ticket, status);
}

void TaskChannels::OnProgress(const PreparedPart::Out& out) {
  const Sending& sending = senders_[out.channel];
  sending.channel->OnProgress(out.entry);
  sending.peer->Pump();
}

void TaskChannels::Fail(int32_t peer, const absl::Status& why, bool connected) {
  for (int32_t i = 0; i < count(); ++i) {
    ChannelSender* const sender = senders_[i].channel;
    if (sender == nullptr || PeerOf(i) != peer) continue;
    connected ? sender->Close(why) : sender->Drop();
  }
  for (int32_t i = 0; i < count(); ++i) {
    if (receivers_[i] != nullptr && PeerOf(i) == peer) receivers_[i]->Fail(why);
  }
}

void TaskChannels::FailReceivers(const absl::Status& why) {
  for (const auto& receiver : receivers_) {
    if (receiver != nullptr) receiver->Fail(why);
  }
}

void TaskChannels::CloseSenders(const absl::Status& why) {
  for (const Sending& sending : senders_) {
    if (sending.channel != nullptr) sending.channel->Close(why);
  }
}

std::optional<int32_t> TaskChannels::ExpectedFrom(int32_t peer) const {
  for (int32_t i = 0; i < count(); ++i) {
    const ChannelSender* const sender = senders_[i].channel;
    const ChannelReceiver* const receiver = receivers_[i].get();
    const bool expecting = (receiver != nullptr && receiver->expecting()) ||
                           (sender != nullptr && sender->waits_for_receiver());
    if (expecting && PeerOf(i) == peer) return i;
  }
  return std::nullopt;
}

bool TaskChannels::HasOpenTransfers(int32_t peer) const {
  for (int32_t i = 0; i < count(); ++i) {
    const ChannelSender* const sender = senders_[i].channel;
    const ChannelReceiver* const receiver = receivers_[i].get();
    const bool open = (sender != nullptr && !sender->finished()) ||
                      (receiver != nullptr && !receiver->finished());
    if (open && PeerOf(i) == peer) return true;
  }
  return false;
}

std::optional<std::string> TaskChannels::StallOnRound(int32_t channel) {
  const auto name = [&] { return NameOf(context_.part, context_.part.channels()[channel]); };
  if (ChannelSender* const sender = senders_[channel].channel;
      sender != nullptr && sender->StalledOnRound()) {
    return absl::StrCat("took nothing of ", name());
  }
  if (receivers_[channel] != nullptr && receivers_[channel]->StalledOnRound()) {
    return absl::StrCat("delivered nothing of what it announced on ", name());
  }
  return std::nullopt;
}

std::string TaskChannels::FirstMissing(DeviceRank device) const {
  for (int32_t i = 0; i < count(); ++i) {
    if (receivers_[i] == nullptr || context_.part.channels()[i].to != device) continue;
    std::string missing = receivers_[i]->Missing();
    if (!missing.empty()) return missing;
  }
  return "";
}

void TaskChannels::WriteLinks(std::vector<LinkReport>& links) const {
  size_t link = 0;
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    if (peers_[peer] == nullptr) continue;
    // Those of an earlier instance are the same links, and keep their memory.
    if (link == links.size()) links.push_back({.peer = context_.spec.peers[peer].worker});
    const SendWindow& window = peers_[peer]->window();
    links[link].sent_bytes = window.sent_bytes();
    links[link].busy_seconds = std::chrono::duration<double>(window.busy()).count();
    ++link;
  }
}

}  // namespace crossmesh
