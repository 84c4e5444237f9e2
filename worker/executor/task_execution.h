#pragma once

#include "worker/executor/channel_receiver.h"
#include "worker/executor/channel_sender.h"
#include "worker/executor/local_channel.h"
#include "worker/executor/peer_sender.h"
#include "worker/executor/relay_progress.h"
#include "worker/executor/task.h"
#include "worker/executor/task_context.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

class TaskExecution;

// What a task asks of its executor.
class TaskHost {
 public:
  virtual ~TaskHost() = default;
  // Call Step soon, from the loop.
  virtual void RequestStep() = 0;
  // Call PumpPeer of the task, if it is still there, not earlier than `delay` from now.
  virtual void PumpAfter(absl::Duration delay, const TaskExecution& task, PeerId peer) = 0;
  // The peer does not move: for every task it is lost.
  virtual void OnPeerStalled(PeerId peer, const absl::Status& why) = 0;
};

// One running task: its channels, its progress and what it knows of its peers. Progress comes from
// messages, completed transfers, and steps of local work. Confined to the loop.
//
// It ends when every node is settled, every copy is done, every message that was sent has been
// taken and no transfer is under way. Failure, cancel and deadline only settle nodes and close
// channels, so that every task ends in this one way; what a peer holds up, the stall timer ends.
class TaskExecution final : private RelayProgressListener {
 public:
  // `peer_ids` by TaskSpec::peers, of those that `NeededPeers` names. All but `spec` must outlive
  // the task.
  TaskExecution(TaskSpec spec, const std::vector<std::optional<PeerId>>& peer_ids,
                ExecutorResources& shared, TaskHost& host, TaskObserver& observer);
  ~TaskExecution() override = default;

  // InvalidArgument as Executor::Start says, for all that needs no transport.
  static absl::Status Validate(const TaskSpec& spec, int64_t staged_chunk_bytes_max);
  // Which of TaskSpec::peers this task exchanges messages with.
  static std::vector<bool> NeededPeers(const TaskSpec& spec);

  void Begin();
  // Makes it another instance of the same part, in the same memory, as if it had just been made,
  // with all sources awaited that its spec names; allocates nothing. Only when done, or not begun.
  void Rewind(uint32_t instance);
  // Is nothing under way that the transport has to end?
  bool quiet() const { return context_.transfers_open == 0; }

  void OnMessage(std::unique_ptr<IncomingMessage> message);
  // Has it the token, and a channel of this part?
  bool IsOurs(const MessageHeader& header) const;
  // Answers a probe for any instance; false when it is not ours.
  bool Answer(const MessageHeader& probe);
  // The receiver of the channel, by its index in the plan, is there.
  void OnReady(uint32_t channel);
  void OnSent(Ticket ticket, const absl::Status& status);
  void OnReceived(Ticket ticket, const absl::Status& status);
  void OnPeerLost(PeerId peer, const absl::Status& why);
  // As if it were lost, but told why, since it may be there.
  void GiveUpPeer(absl::string_view worker, const absl::Status& why);
  // The tiles of a device whose source was awaited.
  void OnSourceHere(DeviceRank device);
  // Settles all that is left, and tells the receivers.
  void Cancel(const absl::Status& why);
  void OnDeadline();
  // As asked of the host.
  void PumpPeer(PeerId peer);
  // Four times per stall limit.
  void OnStallRound();

  // Does a bounded piece of local work and reports devices. Returns whether more is to be done now.
  bool Step();
  bool done() const;
  // Once done(). The report is that of the instance until Rewind.
  const TaskReport& FinishReport();
  // The same; the last call.
  TaskReport TakeReport();

  const TaskSpec& spec() const { return spec_; }
  TaskObserver& observer() { return observer_; }
  const RelayProgress& progress() const { return progress_; }
  int64_t moved_bytes() const { return report_.received_bytes + report_.copied_bytes; }

 private:
  struct Peer {
    std::optional<PeerId> id;        // none: not needed, or lost
    std::optional<PeerId> given_up;  // lost, and perhaps still connected
    absl::Status lost;               // why, when it is
    bool heard = false;              // since the last round
    int32_t probes_open = 0;
    StallCounter silence{StallCounter::kReceiverRoundsMax};
  };

  void OnNodeProgress(int32_t node) override;
  void OnDeviceSettled() override { host_.RequestStep(); }

  void MakeChannels();
  PeerSender& TurnsOf(int32_t peer);
  void ReserveTransfers();
  // Sends a message without payload to the other end of a channel.
  void Notify(int32_t channel, int32_t peer, MessageKind kind) {
    Notify(channel, peer, kind, spec_.key.instance);
  }
  void Notify(int32_t channel, int32_t peer, MessageKind kind, uint32_t instance);
  // Of a channel to or from another worker.
  int32_t RemotePeer(int32_t channel) const;
  // All that is left of a peer that is lost.
  void FailChannelsOf(int32_t peer, bool connected);
  // A bounded piece of it.
  void ComputeScales();
  bool DoLocalWork();
  void LosePeer(int32_t peer, const absl::Status& why, bool connected);
  void LosePeerIfKnown(int32_t peer, const absl::Status& why);
  // When only transfers with peers that were given up hold up the end.
  void CutOffGivenUpPeers();
  bool HasOpenTransfers(int32_t peer) const;
  // Asks a silent peer whether it is there, or gives it up.
  void CheckPeer(int32_t peer);
  // A channel on which something must still come from the peer, if only that it is ready.
  std::optional<int32_t> ExpectedChannel(int32_t peer) const;
  void DeclareStalled(int32_t peer, const std::string& how);
  int32_t PeerOf(DeviceRank device) const { return spec_.peer_of_device.at(device); }
  std::string FirstMissing(DeviceRank device) const;

  TaskSpec spec_;
  ExecutorResources& shared_;
  TaskHost& host_;
  TaskObserver& observer_;
  std::chrono::steady_clock::time_point started_;
  TaskReport report_;
  RelayProgress progress_;
  SourceScales scales_;
  TaskContext context_;
  std::vector<Peer> peers_;                         // as spec_.peers
  std::vector<std::unique_ptr<PeerSender>> turns_;  // likewise; none where nothing is sent
  int rounds_held_up_ = 0;                          // in a row

  // By channel; none where the channel is of another kind.
  std::vector<std::unique_ptr<ChannelSender>> senders_;
  std::vector<std::unique_ptr<ChannelReceiver>> receivers_;
  std::vector<LocalChannel*> local_channels_;
  std::vector<std::unique_ptr<LocalChannel>> locals_;
  std::vector<DeviceCopy> copies_;
  size_t next_local_ = 0;  // local channels, then copies, in turn
};

}  // namespace crossmesh
