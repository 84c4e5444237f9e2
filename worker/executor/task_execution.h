#pragma once

#include "worker/executor/executor_resources.h"
#include "worker/executor/local_work.h"
#include "worker/executor/relay_progress.h"
#include "worker/executor/source_scales.h"
#include "worker/executor/task.h"
#include "worker/executor/task_channels.h"
#include "worker/executor/task_context.h"
#include "worker/executor/task_peers.h"
#include "worker/executor/transfer_table.h"
#include "worker/transport/transport.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// One running task, from its beginning to its report: what transport, timers and local work bring
// becomes progress of its relays, and their progress lets its channels go on. Confined to the loop.
//
// It ends when every node is settled, every copy is done, every message that was sent has been
// taken and no transfer is under way. Failure, cancel and deadline only settle nodes and close
// channels, so that every task ends in this one way; what a peer holds up, the stall timer ends.
class TaskExecution final : public TransferOwner {
 public:
  // Of a spec that CheckTask accepts. `peer_ids` by TaskSpec::peers, of those that NeededPeers
  // names. All but `spec` and `peer_ids` must outlive the task.
  TaskExecution(TaskSpec spec, std::span<const std::optional<PeerId>> peer_ids,
                ExecutorResources& shared, TaskObserver& observer);
  TaskExecution(const TaskExecution&) = delete;
  TaskExecution& operator=(const TaskExecution&) = delete;
  ~TaskExecution() override = default;

  void Begin();
  // Makes it another instance of the same part, in the same memory, as if it had just been made,
  // with all sources awaited that its spec names; allocates nothing. Only when done, or not begun.
  void Rewind(uint32_t instance);
  // Is nothing under way that the transport has to end?
  bool quiet() const { return context_.transfers_open == 0; }

  // Has it the token, and a channel of this part?
  bool IsOurs(const MessageHeader& header) const;
  void OnMessage(std::unique_ptr<IncomingMessage> message);
  // Answers a probe for any instance; false when it is not ours.
  bool Answer(const MessageHeader& probe);
  // As TaskPeers::TellStopped; and which worker has said so by a message that is ours.
  void TellStopped() { peers_.TellStopped(); }
  absl::string_view PeerOf(const MessageHeader& header) const;
  // The receiver of the channel, by its index in the plan, is there.
  void OnReady(uint32_t channel);
  void OnSent(Ticket ticket, const absl::Status& status) override;
  void OnReceived(Ticket ticket, const absl::Status& status) override;
  void OnPeerLost(PeerId peer, const absl::Status& why);
  // As if it were lost, but told why, since it may be there.
  void GiveUpPeer(absl::string_view worker, const absl::Status& why);
  // The tiles of a device whose source was awaited.
  void OnSourceHere(DeviceRank device);
  // Settles all that is left, and tells the receivers.
  void Cancel(const absl::Status& why);
  void OnDeadline();
  // Four times per stall limit.
  void OnStallRound();

  // Does a bounded piece of local work and reports devices. Returns whether more is to be done now.
  bool Step();
  bool done() const;
  // Once, when done. The report is that of the instance until Rewind.
  const TaskReport& FinishReport();

  const TaskSpec& spec() const { return spec_; }
  TaskObserver& observer() { return observer_; }
  int64_t moved_bytes() const { return report_.received_bytes + report_.copied_bytes; }

 private:
  void AwaitSources();
  // Wakes the channels on which the node goes on.
  void OnNodeProgress(int32_t node);
  std::string FirstMissing(DeviceRank device) const;

  TaskSpec spec_;
  ExecutorResources& shared_;
  TaskObserver& observer_;
  std::chrono::steady_clock::time_point started_;
  TaskReport report_;
  RelayProgress progress_;
  SourceScales scales_;
  TaskContext context_;
  TaskChannels channels_;
  TaskPeers peers_;
  LocalWork local_;
};

}  // namespace crossmesh
