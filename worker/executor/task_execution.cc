#include "worker/executor/task_execution.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <utility>

#include <absl/container/flat_hash_set.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Local work between two looks at the transport.
constexpr int64_t kStepBytes = int64_t{1} << 20;
constexpr int kStepActionsMax = 64;

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::optional<DeviceRank> RemoteEnd(const PreparedPart::Channel& channel) {
  switch (channel.reach) {
    case PreparedPart::Reach::kIn:
      return channel.from;
    case PreparedPart::Reach::kOut:
      return channel.to;
    case PreparedPart::Reach::kLocal:
      break;
  }
  return std::nullopt;
}

absl::Status ValidateBinding(const TaskSpec& spec, Side side, DeviceRank device) {
  const auto& bindings = side == Side::kSource ? spec.sources : spec.destinations;
  const TensorTable& tensors = spec.part->part().tensors();
  const TileMap& map = spec.part->tiles(side, device);
  const auto found = bindings.find(device);
  const size_t bound = found == bindings.end() ? 0 : found->second.tensor.size();
  for (size_t tensor = 0; tensor < tensors.group_of_tensor().size(); ++tensor) {
    const int32_t group = tensors.group_of_tensor()[tensor];
    if (group < 0 || map.tile_bytes(group) == 0) continue;
    if (side == Side::kSource && tensors.is_scales(group)) continue;
    if (tensor < bound && found->second.tensor[tensor] != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(side == Side::kSource ? "source" : "destination", " of device ",
                     ToString(tensors.devices()[device]), ": expected memory for the ",
                     map.tile_bytes(group), " bytes of tensor ", tensor, ", found none"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status TaskExecution::Validate(const TaskSpec& spec, int64_t staged_chunk_bytes_max) {
  const PreparedPart& part = *spec.part;
  if (part.chunk_bytes() > staged_chunk_bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunks of ", part.chunk_bytes(), " bytes: expected at most the ",
                     staged_chunk_bytes_max, " bytes of staging in one direction"));
  }
  for (const DeviceRank device : part.destinations()) {
    RETURN_IF_ERROR(ValidateBinding(spec, Side::kDestination, device));
  }
  for (const PreparedPart::Copy& copy : part.copies()) {
    RETURN_IF_ERROR(ValidateBinding(spec, Side::kSource, copy.device));
  }
  absl::flat_hash_set<DeviceRank> roots;
  for (const PreparedPart::Node& node : part.nodes()) {
    if (!node.root || !roots.insert(node.device).second) continue;
    RETURN_IF_ERROR(ValidateBinding(spec, Side::kSource, node.device));
  }
  for (const PreparedPart::Channel& channel : part.channels()) {
    const std::optional<DeviceRank> remote = RemoteEnd(channel);
    if (!remote.has_value()) continue;
    const auto peer = spec.peer_of_device.find(*remote);
    if (peer == spec.peer_of_device.end() || peer->second < 0 ||
        peer->second >= std::ssize(spec.peers)) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(part, channel), ": expected the worker of ",
                       ToString(part.part().tensors().devices()[*remote]), ", found none"));
    }
  }
  return absl::OkStatus();
}

std::vector<bool> TaskExecution::NeededPeers(const TaskSpec& spec) {
  std::vector<bool> needed(spec.peers.size());
  for (const PreparedPart::Channel& channel : spec.part->channels()) {
    if (const std::optional<DeviceRank> remote = RemoteEnd(channel)) {
      needed[spec.peer_of_device.at(*remote)] = true;
    }
  }
  return needed;
}

TaskExecution::TaskExecution(TaskSpec spec, const std::vector<std::optional<PeerId>>& peer_ids,
                             ExecutorResources& shared, TaskHost& host, TaskObserver& observer)
    : spec_(std::move(spec)),
      shared_(shared),
      host_(host),
      observer_(observer),
      started_(std::chrono::steady_clock::now()),
      report_{.key = spec_.key},
      progress_(*spec_.part, spec_.checksums, *this),
      scales_(*spec_.part, spec_.sources),
      context_{.spec = spec_,
               .part = *spec_.part,
               .shared = shared,
               .progress = progress_,
               .report = report_,
               .task = *this,
               .scales = scales_},
      peers_(spec_.peers.size()),
      turns_(spec_.peers.size()) {
  for (size_t i = 0; i < peer_ids.size(); ++i) peers_[i].id = peer_ids[i];
  for (const DeviceRank device : spec_.awaited_sources) progress_.AwaitSource(device);
  for (const DeviceRank device : scales_.devices()) {
    progress_.AwaitSource(device);
    if (!spec_.awaited_sources.contains(device)) scales_.OnSourceHere(device);
  }
  MakeChannels();
  for (const PreparedPart::Copy& copy : spec_.part->copies()) {
    copies_.emplace_back(context_, copy);
    progress_.ExpectItem(copy.device);
  }
}

void TaskExecution::MakeChannels() {
  const std::vector<PreparedPart::Channel>& channels = spec_.part->channels();
  senders_.resize(channels.size());
  receivers_.resize(channels.size());
  local_channels_.resize(channels.size());
  for (int32_t i = 0; i < std::ssize(channels); ++i) {
    switch (channels[i].reach) {
      case PreparedPart::Reach::kLocal:
        locals_.push_back(std::make_unique<LocalChannel>(context_, i));
        local_channels_[i] = locals_.back().get();
        break;
      case PreparedPart::Reach::kOut:
        senders_[i] = std::make_unique<ChannelSender>(context_, i, TurnsOf(PeerOf(channels[i].to)));
        break;
      case PreparedPart::Reach::kIn:
        receivers_[i] =
            std::make_unique<ChannelReceiver>(context_, i, *peers_[PeerOf(channels[i].from)].id);
        progress_.ExpectItem(channels[i].to);
        break;
    }
  }
  ReserveTransfers();
}

PeerSender& TaskExecution::TurnsOf(int32_t peer) {
  if (turns_[peer] == nullptr) {
    turns_[peer] = std::make_unique<PeerSender>(context_, *peers_[peer].id, host_);
  }
  return *turns_[peer];
}

// Sends and receives of chunks that may be under way at once, with every channel's opening and
// closing.
void TaskExecution::ReserveTransfers() {
  size_t count = 2 * spec_.part->channels().size();
  int pieces_max = 0;
  for (const Peer& peer : peers_) {
    if (!peer.id.has_value()) continue;
    count += 2 * shared_.transport.lanes(*peer.id) * ExecutorOptions::kLaneMessagesMax;
    pieces_max = std::max(pieces_max, shared_.transport.useful_pieces_max(*peer.id));
  }
  shared_.transfers.Reserve(count, pieces_max);
}

void TaskExecution::Rewind(uint32_t instance) {
  spec_.key.instance = instance;
  started_ = std::chrono::steady_clock::now();
  report_.key = spec_.key;
  report_.status = absl::OkStatus();
  report_.devices.clear();
  report_.lost_peers.clear();
  report_.first_loss = absl::OkStatus();
  report_.sent_bytes = report_.received_bytes = report_.copied_bytes = 0;
  report_.seconds = {};
  context_.source_here.reset();
  context_.chunk_begun = false;
  progress_.Rewind();
  for (const DeviceRank device : spec_.awaited_sources) progress_.AwaitSource(device);
  for (const auto& turns : turns_) {
    if (turns != nullptr) turns->Rewind();
  }
  for (size_t i = 0; i < receivers_.size(); ++i) {
    if (senders_[i] != nullptr) senders_[i]->Rewind();
    if (receivers_[i] == nullptr) continue;
    receivers_[i]->Rewind();
    progress_.ExpectItem(spec_.part->channels()[i].to);
  }
  for (const auto& local : locals_) local->Rewind();
  for (size_t i = 0; i < copies_.size(); ++i) {
    copies_[i].Rewind();
    progress_.ExpectItem(spec_.part->copies()[i].device);
  }
  for (Peer& peer : peers_) {
    peer.heard = false;
    peer.silence.OnProgress();
  }
  rounds_held_up_ = 0;
}

void TaskExecution::Begin() {
  report_.seconds.bind = SecondsSince(started_);
  progress_.Begin();
  for (int32_t peer = 0; peer < std::ssize(peers_); ++peer) {
    if (!peers_[peer].lost.ok()) FailChannelsOf(peer, /*connected=*/false);
  }
  for (size_t i = 0; i < receivers_.size() && spec_.receivers_say_ready; ++i) {
    if (receivers_[i] == nullptr) continue;
    Notify(static_cast<int32_t>(i), PeerOf(receivers_[i]->peer_device()), MessageKind::kReady);
  }
  for (const auto& turns : turns_) {
    if (turns != nullptr) turns->Pump();
  }
  host_.RequestStep();
}

bool TaskExecution::IsOurs(const MessageHeader& header) const {
  const std::optional<int32_t> channel =
      spec_.part->FindChannel(static_cast<ChannelIndex>(header.channel));
  return header.token_high == spec_.token_high && header.token_low == spec_.token_low &&
         channel.has_value() && (senders_[*channel] != nullptr || receivers_[*channel] != nullptr);
}

int32_t TaskExecution::RemotePeer(int32_t channel) const {
  return PeerOf(senders_[channel] != nullptr ? senders_[channel]->peer_device()
                                             : receivers_[channel]->peer_device());
}

void TaskExecution::OnMessage(std::unique_ptr<IncomingMessage> message) {
  const MessageHeader& header = message->header();
  if (!IsOurs(header)) {
    shared_.counters.messages_dropped++;
    return;
  }
  const int32_t channel = *spec_.part->FindChannel(static_cast<ChannelIndex>(header.channel));
  peers_[RemotePeer(channel)].heard = true;
  const MessageKind kind = static_cast<MessageKind>(header.kind);
  if (kind == MessageKind::kProbe) {
    Answer(header);
  } else if (kind == MessageKind::kReady && senders_[channel] != nullptr) {
    senders_[channel]->OnReady();
  } else if (receivers_[channel] != nullptr && kind != MessageKind::kAlive) {
    receivers_[channel]->OnMessage(std::move(message));
  } else if (kind != MessageKind::kAlive) {
    shared_.counters.messages_dropped++;
  }
  host_.RequestStep();
}

bool TaskExecution::Answer(const MessageHeader& probe) {
  if (!IsOurs(probe)) return false;
  const int32_t channel = *spec_.part->FindChannel(static_cast<ChannelIndex>(probe.channel));
  Notify(channel, RemotePeer(channel), MessageKind::kAlive, probe.instance);
  return true;
}

void TaskExecution::OnReady(uint32_t channel) {
  const std::optional<int32_t> index = spec_.part->FindChannel(static_cast<ChannelIndex>(channel));
  if (index.has_value() && senders_[*index] != nullptr) senders_[*index]->OnReady();
}

void TaskExecution::Notify(int32_t channel, int32_t peer, MessageKind kind, uint32_t instance) {
  if (!peers_[peer].id.has_value()) return;
  ++peers_[peer].probes_open;
  const Ticket ticket = context_.AddTransfer({.kind = kind, .channel = channel, .entry = peer});
  MessageHeader header = context_.HeaderFor(spec_.part->channels()[channel], kind, 0);
  header.instance = instance;
  shared_.transport.Send(*peers_[peer].id, header, {}, ticket);
}

void TaskExecution::OnSent(Ticket ticket, const absl::Status& status) {
  const TransferSubject subject = shared_.transfers.at(ticket).subject;
  if (subject.kind == MessageKind::kProbe || subject.kind == MessageKind::kAlive ||
      subject.kind == MessageKind::kReady) {
    // No sign of life of the task at the other end: its worker may have dropped the message.
    --peers_[subject.entry].probes_open;
    context_.RemoveTransfer(ticket);
  } else {
    if (absl::IsUnavailable(status)) {
      LosePeerIfKnown(PeerOf(senders_[subject.channel]->peer_device()), status);
    }
    senders_[subject.channel]->OnSent(ticket, status);
  }
  host_.RequestStep();
}

void TaskExecution::OnReceived(Ticket ticket, const absl::Status& status) {
  const int32_t channel = shared_.transfers.at(ticket).subject.channel;
  receivers_[channel]->OnReceived(ticket, status);
  if (absl::IsUnavailable(status)) {
    LosePeerIfKnown(PeerOf(receivers_[channel]->peer_device()), status);
  }
  host_.RequestStep();
}

// What was under way comes back before the transport tells of the loss. Nothing more is sent in
// between: the task could end without a word of who is lost.
void TaskExecution::LosePeerIfKnown(int32_t peer, const absl::Status& why) {
  if (peers_[peer].id.has_value()) LosePeer(peer, why, /*connected=*/false);
}

void TaskExecution::OnNodeProgress(int32_t node) {
  for (const PreparedPart::Out& out : spec_.part->outs(spec_.part->nodes()[node])) {
    if (senders_[out.channel] != nullptr) {
      senders_[out.channel]->OnProgress(out.entry);
    } else {
      local_channels_[out.channel]->OnProgress(out.entry);
    }
  }
  host_.RequestStep();
}

void TaskExecution::OnPeerLost(PeerId peer_id, const absl::Status& why) {
  for (int32_t peer = 0; peer < std::ssize(peers_); ++peer) {
    if (peers_[peer].id == peer_id) LosePeer(peer, why, /*connected=*/false);
  }
}

void TaskExecution::GiveUpPeer(absl::string_view worker, const absl::Status& why) {
  for (int32_t peer = 0; peer < std::ssize(peers_); ++peer) {
    if (peers_[peer].id.has_value() && spec_.peers[peer].worker == worker) {
      LosePeer(peer, why, /*connected=*/true);
    }
  }
}

void TaskExecution::LosePeer(int32_t peer, const absl::Status& why, bool connected) {
  peers_[peer].given_up = std::exchange(peers_[peer].id, std::nullopt);
  peers_[peer].lost = absl::UnavailableError(
      absl::StrCat("worker ", spec_.peers[peer].worker, " is lost: ", why.message()));
  FailChannelsOf(peer, connected);
}

void TaskExecution::FailChannelsOf(int32_t peer, bool connected) {
  const absl::Status& lost = peers_[peer].lost;
  report_.lost_peers.push_back(spec_.peers[peer].worker);
  report_.first_loss.Update(lost);
  for (const auto& sender : senders_) {
    if (sender != nullptr && PeerOf(sender->peer_device()) == peer) {
      connected ? sender->Close(lost) : sender->Drop();
    }
  }
  for (const auto& receiver : receivers_) {
    if (receiver != nullptr && PeerOf(receiver->peer_device()) == peer) receiver->Fail(lost);
  }
  host_.RequestStep();
}

void TaskExecution::OnSourceHere(DeviceRank device) {
  // Scales come before all that is read of it.
  if (scales_.Find(device) != nullptr) {
    scales_.OnSourceHere(device);
  } else {
    context_.OnSourceHere();
    progress_.OnSourceReady(device);
  }
  host_.RequestStep();
}

void TaskExecution::Cancel(const absl::Status& why) {
  if (report_.status.ok()) report_.status = why;
  for (const auto& receiver : receivers_) {
    if (receiver != nullptr) receiver->Fail(why);
  }
  for (int32_t node = 0; node < std::ssize(spec_.part->nodes()); ++node) {
    progress_.FailNode(node, why);
  }
  for (const DeviceRank device : spec_.part->destinations()) progress_.FailDevice(device, why);
  for (const auto& sender : senders_) {
    if (sender != nullptr) sender->Close(why);
  }
  host_.RequestStep();
}

void TaskExecution::OnDeadline() {
  const std::string text = absl::StrCat("deadline of ", absl::FormatDuration(spec_.deadline));
  for (const DeviceRank device : spec_.part->destinations()) {
    if (progress_.device_settled(device)) continue;
    progress_.FailDevice(device, absl::DeadlineExceededError(
                                     absl::StrCat(text, "; missing: ", FirstMissing(device))));
  }
  Cancel(absl::DeadlineExceededError(text));
}

std::string TaskExecution::FirstMissing(DeviceRank device) const {
  for (size_t i = 0; i < receivers_.size(); ++i) {
    if (receivers_[i] == nullptr || spec_.part->channels()[i].to != device) continue;
    std::string missing = receivers_[i]->Missing();
    if (!missing.empty()) return missing;
  }
  return "copies inside this worker";
}

void TaskExecution::PumpPeer(PeerId peer) {
  for (const auto& turns : turns_) {
    if (turns != nullptr && turns->peer() == peer) turns->PumpAsAsked();
  }
}

void TaskExecution::OnStallRound() {
  for (size_t i = 0; i < senders_.size(); ++i) {
    if (senders_[i] != nullptr && senders_[i]->StalledOnRound()) {
      DeclareStalled(
          PeerOf(senders_[i]->peer_device()),
          absl::StrCat("took nothing of ", NameOf(*spec_.part, spec_.part->channels()[i])));
    }
    if (receivers_[i] != nullptr && receivers_[i]->StalledOnRound()) {
      DeclareStalled(PeerOf(receivers_[i]->peer_device()),
                     absl::StrCat("delivered nothing of what it announced on ",
                                  NameOf(*spec_.part, spec_.part->channels()[i])));
    }
  }
  for (int32_t peer = 0; peer < std::ssize(peers_); ++peer) CheckPeer(peer);
  CutOffGivenUpPeers();
}

void TaskExecution::CutOffGivenUpPeers() {
  const bool held_up =
      context_.transfers_open > 0 && progress_.all_nodes_settled() && progress_.all_devices_taken();
  rounds_held_up_ = held_up ? rounds_held_up_ + 1 : 0;
  if (rounds_held_up_ < StallCounter::kRoundsMax) return;
  for (int32_t peer = 0; peer < std::ssize(peers_); ++peer) {
    if (!peers_[peer].given_up.has_value() || !HasOpenTransfers(peer)) continue;
    host_.OnPeerStalled(*std::exchange(peers_[peer].given_up, std::nullopt),
                        absl::UnavailableError("given up, with transfers under way"));
  }
}

bool TaskExecution::HasOpenTransfers(int32_t peer) const {
  const auto holds_up = [&](const auto& channel) {
    return channel != nullptr && PeerOf(channel->peer_device()) == peer && !channel->finished();
  };
  return peers_[peer].probes_open > 0 || std::any_of(senders_.begin(), senders_.end(), holds_up) ||
         std::any_of(receivers_.begin(), receivers_.end(), holds_up);
}

void TaskExecution::CheckPeer(int32_t index) {
  Peer& peer = peers_[index];
  if (!peer.id.has_value()) return;
  if (std::exchange(peer.heard, false)) peer.silence.OnProgress();
  const std::optional<int32_t> expected = ExpectedChannel(index);
  if (peer.silence.OnRound(expected.has_value() || peer.probes_open > 0)) {
    DeclareStalled(index, "answers no message");
  } else if (peer.silence.rounds() > 1 && peer.probes_open == 0) {
    Notify(*expected, index, MessageKind::kProbe);
  }
}

std::optional<int32_t> TaskExecution::ExpectedChannel(int32_t peer) const {
  for (size_t i = 0; i < receivers_.size(); ++i) {
    const ChannelReceiver* receiver = receivers_[i].get();
    const ChannelSender* sender = senders_[i].get();
    if ((receiver != nullptr && PeerOf(receiver->peer_device()) == peer && receiver->expecting()) ||
        (sender != nullptr && PeerOf(sender->peer_device()) == peer &&
         sender->waits_for_receiver())) {
      return static_cast<int32_t>(i);
    }
  }
  return std::nullopt;
}

void TaskExecution::DeclareStalled(int32_t peer, const std::string& how) {
  if (!peers_[peer].id.has_value()) return;
  shared_.counters.stalls++;
  host_.OnPeerStalled(*peers_[peer].id,
                      absl::UnavailableError(absl::StrCat(
                          "stalled, it ", how, " for ", absl::FormatDuration(spec_.stall_limit))));
}

bool TaskExecution::Step() {
  for (const auto& turns : turns_) {
    if (turns != nullptr) turns->Step();
  }
  const bool more = DoLocalWork();
  while (std::optional<DeviceReport> device = progress_.TakeSettledDevice()) {
    observer_.OnDeviceDone(spec_.key, *device);
    report_.devices.push_back(*std::move(device));
  }
  return more;
}

void TaskExecution::ComputeScales() {
  const PhaseTimer timer(report_.seconds.pack);
  for (int64_t bytes = 0; bytes < kStepBytes && !scales_.idle();) {
    const SourceScales::Progress progress = scales_.Step();
    bytes += progress.read_bytes;
    if (progress.done.has_value()) progress_.OnSourceReady(*progress.done);
  }
}

bool TaskExecution::DoLocalWork() {
  if (!scales_.idle()) {
    ComputeScales();
    return true;
  }
  const size_t count = locals_.size() + copies_.size();
  int64_t bytes = 0;
  size_t idle = 0;  // in a row; when all are, there is nothing to do
  for (int actions = 0; idle < count; ++actions) {
    if (bytes >= kStepBytes || actions == kStepActionsMax) return true;
    const size_t i = next_local_++ % count;
    const int64_t moved =
        i < locals_.size() ? locals_[i]->Step() : copies_[i - locals_.size()].Step();
    if (moved < 0) {
      ++idle;
    } else {
      bytes += moved;
      idle = 0;
    }
  }
  return false;
}

bool TaskExecution::done() const {
  if (context_.transfers_open > 0 || !progress_.all_nodes_settled() ||
      !progress_.all_devices_taken()) {
    return false;
  }
  const auto finished = [](const auto& channel) {
    return channel == nullptr || channel->finished();
  };
  return std::all_of(senders_.begin(), senders_.end(), finished) &&
         std::all_of(receivers_.begin(), receivers_.end(), finished) &&
         std::all_of(copies_.begin(), copies_.end(),
                     [](const DeviceCopy& copy) { return copy.finished(); });
}

const TaskReport& TaskExecution::FinishReport() {
  report_.seconds.move = SecondsSince(started_) - report_.seconds.bind;
  size_t link = 0;
  for (size_t peer = 0; peer < turns_.size(); ++peer) {
    if (turns_[peer] == nullptr) continue;
    // Those of an earlier instance are the same links.
    if (link == report_.links.size()) report_.links.push_back({.peer = spec_.peers[peer].worker});
    report_.links[link].sent_bytes = turns_[peer]->sent_bytes();
    report_.links[link].busy_seconds = std::chrono::duration<double>(turns_[peer]->busy()).count();
    ++link;
  }
  return report_;
}

TaskReport TaskExecution::TakeReport() {
  FinishReport();
  return std::move(report_);
}

}  // namespace crossmesh
