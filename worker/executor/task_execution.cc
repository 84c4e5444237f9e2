#include "worker/executor/task_execution.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

TaskExecution::TaskExecution(TaskSpec spec, std::span<const std::optional<PeerId>> peer_ids,
                             ExecutorResources& shared, TaskObserver& observer)
    : spec_(std::move(spec)),
      shared_(shared),
      observer_(observer),
      started_(std::chrono::steady_clock::now()),
      report_{.key = spec_.key},
      progress_(*spec_.part, spec_.checksums, [this](int32_t node) { OnNodeProgress(node); }),
      scales_(*spec_.part, spec_.sources),
      context_{.spec = spec_,
               .part = *spec_.part,
               .shared = shared,
               .progress = progress_,
               .report = report_,
               .owner = *this,
               .scales = scales_},
      channels_(context_, peer_ids),
      peers_(context_, channels_, peer_ids),
      local_(context_, scales_) {
  AwaitSources();
  // The source of a device with scales is there when they are: what is sent of it needs them.
  for (const DeviceRank device : scales_.devices()) {
    progress_.AwaitSource(device);
    if (!spec_.awaited_sources.contains(device)) scales_.OnSourceHere(device);
  }
}

void TaskExecution::AwaitSources() {
  for (const DeviceRank device : spec_.awaited_sources) progress_.AwaitSource(device);
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
  AwaitSources();
  channels_.Rewind();
  peers_.Rewind();
  local_.Rewind();
}

void TaskExecution::Begin() {
  report_.seconds.bind = SecondsSince(started_);
  // Peers before channels: what is left of a peer that was lost earlier sends nothing.
  progress_.Begin();
  peers_.Begin();
  channels_.Pump();
  shared_.steps.Request();
}

bool TaskExecution::IsOurs(const MessageHeader& header) const {
  return header.token_high == spec_.token_high && header.token_low == spec_.token_low &&
         channels_.Find(header.channel).has_value();
}

void TaskExecution::OnMessage(std::unique_ptr<IncomingMessage> message) {
  const MessageHeader& header = message->header();
  if (!IsOurs(header)) {
    shared_.counters.messages_dropped++;
    return;
  }
  const int32_t channel = *channels_.Find(header.channel);
  peers_.OnHeard(channel);
  const MessageKind kind = static_cast<MessageKind>(header.kind);
  if (kind == MessageKind::kProbe) {
    peers_.Answer(header, channel);
  } else if (kind != MessageKind::kAlive) {
    channels_.OnMessage(channel, std::move(message));
  }
  shared_.steps.Request();
}

bool TaskExecution::Answer(const MessageHeader& probe) {
  if (!IsOurs(probe)) return false;
  peers_.Answer(probe, *channels_.Find(probe.channel));
  return true;
}

absl::string_view TaskExecution::PeerOf(const MessageHeader& header) const {
  return spec_.peers[channels_.PeerOf(*channels_.Find(header.channel))].worker;
}

void TaskExecution::OnReady(uint32_t channel) {
  if (const std::optional<int32_t> index = channels_.Find(channel)) channels_.OnReady(*index);
}

void TaskExecution::OnSent(Ticket ticket, const absl::Status& status) {
  const TransferSubject& subject = shared_.transfers.at(ticket).subject;
  if (TaskPeers::IsNotice(subject.kind)) {
    peers_.OnNoticeSent(ticket);
  } else {
    // First, so that the channel sends nothing more to a peer that is gone.
    if (absl::IsUnavailable(status)) peers_.OnUnreachable(subject.channel, status);
    channels_.OnSent(ticket, status);
  }
  shared_.steps.Request();
}

void TaskExecution::OnReceived(Ticket ticket, const absl::Status& status) {
  const int32_t channel = shared_.transfers.at(ticket).subject.channel;
  channels_.OnReceived(ticket, status);
  if (absl::IsUnavailable(status)) peers_.OnUnreachable(channel, status);
  shared_.steps.Request();
}

void TaskExecution::OnNodeProgress(int32_t node) {
  for (const PreparedPart::Out& out : spec_.part->outs(spec_.part->nodes()[node])) {
    if (spec_.part->channels()[out.channel].reach == PreparedPart::Reach::kLocal) {
      local_.OnProgress(out);
    } else {
      channels_.OnProgress(out);
    }
  }
  shared_.steps.Request();
}

void TaskExecution::OnPeerLost(PeerId peer, const absl::Status& why) {
  peers_.OnLost(peer, why);
  shared_.steps.Request();
}

void TaskExecution::GiveUpPeer(absl::string_view worker, const absl::Status& why) {
  peers_.GiveUp(worker, why);
  shared_.steps.Request();
}

void TaskExecution::OnSourceHere(DeviceRank device) {
  // Scales come before all that is read of it.
  if (scales_.Find(device) != nullptr) {
    scales_.OnSourceHere(device);
  } else {
    context_.OnSourceHere();
    progress_.OnSourceReady(device);
  }
  shared_.steps.Request();
}

void TaskExecution::Cancel(const absl::Status& why) {
  if (report_.status.ok()) report_.status = why;
  channels_.FailReceivers(why);
  for (int32_t node = 0; node < std::ssize(spec_.part->nodes()); ++node) {
    progress_.FailNode(node, why);
  }
  for (const DeviceRank device : spec_.part->destinations()) progress_.FailDevice(device, why);
  channels_.CloseSenders(why);
  shared_.steps.Request();
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
  std::string missing = channels_.FirstMissing(device);
  return missing.empty() ? "copies inside this worker" : missing;
}

void TaskExecution::OnStallRound() { peers_.OnStallRound(); }

bool TaskExecution::Step() {
  channels_.Step();
  const bool more = local_.Step();
  while (std::optional<DeviceReport> device = progress_.TakeSettledDevice()) {
    observer_.OnDeviceDone(spec_.key, *device);
    report_.devices.push_back(*std::move(device));
  }
  return more;
}

bool TaskExecution::done() const {
  return quiet() && context_.is_settled() && channels_.finished() && local_.finished();
}

const TaskReport& TaskExecution::FinishReport() {
  report_.seconds.move = SecondsSince(started_) - report_.seconds.bind;
  channels_.WriteLinks(report_.links);
  shared_.counters.relays_succeeded += progress_.relays_succeeded();
  shared_.counters.relays_failed += progress_.relays_failed();
  shared_.counters.checksum_failures += progress_.checksum_failures();
  return report_;
}

}  // namespace crossmesh
