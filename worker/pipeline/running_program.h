#pragma once

#include "crossmesh/v1/pipeline_execution_service.pb.h"
#include "worker/executor/replay.h"
#include "worker/pipeline/program_progress.h"
#include "worker/pipeline/program_start.h"
#include "worker/pipeline/rank_queue.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>

namespace crossmesh {

class Clock;
class EventLoop;
class PartReplayer;
struct ProgramMemory;

// Hears how a program goes. Called on the data loop.
class ProgramObserver {
 public:
  virtual ~ProgramObserver() = default;
  // After Open: OK, and iterations may begin; or FailedPrecondition, why the process of a rank does
  // not go on since others have lost their state. Then Stop is to follow.
  virtual void OnReady(const absl::Status& status) = 0;
  virtual void OnReport(const v1::RunProgramResponse::IterationReport& report) = 0;
  // The last call: the executor neither reads nor writes the program's memory any more.
  virtual void OnStopped() = 0;
};

// One worker's program that runs: brings together what its ranks compute and what the executor
// moves. Confined to the data loop, but for construction. Must not be destroyed between Open and
// OnStopped.
class RunningProgram final : private ReplayObserver {
 public:
  struct Ports {
    EventLoop& data;
    PartReplayer& replayer;
    const Clock& clock;
    ProgramObserver& listener;
  };

  // `worker`: this one's name among the peers.
  RunningProgram(const Ports& ports, const std::string& worker, ProgramStart start,
                 std::shared_ptr<const ProgramMemory> memory);

  // By rank of the program. Any thread.
  const std::vector<std::shared_ptr<RankQueue>>& queues() const { return queues_; }

  // Connects to the other workers, and tells when iterations may begin. An error is what
  // PartReplayer::StartReplays finds, with the transfer; then Stop is to follow.
  absl::Status Open();
  // FailedPrecondition when one runs or has failed, the program stops, or a rank has not said that
  // it goes on; why a rank has no process that computes it.
  absl::Status BeginIteration(int64_t iteration);
  // OK: the last iteration is complete everywhere. Repeatable.
  void Stop(const absl::Status& why);

 private:
  using Report = v1::RunProgramResponse::IterationReport;

  // What is known of the messages of a transfer in this iteration.
  struct Transfer {
    ReplayKey key;
    int64_t devices = 0;  // of this worker that get a message
    bool open = false;    // its replays run
    // By message.
    std::vector<int64_t> devices_left;
    std::vector<int64_t> produced_ns;
    std::vector<int64_t> first_byte_ns;
    std::vector<int64_t> arrived_ns;
    std::vector<int64_t> fill_ns;  // from the end of the op to here
  };
  struct Rank {
    bool asked = false;    // whether it goes on without the state that is lost; no answer yet
    int32_t running = -1;  // op, the first of its step
    std::vector<int64_t> begin_ns;
    std::vector<int64_t> end_ns;
  };

  void OnDeviceDone(const TaskKey& key, const DeviceReport& report) override;
  void OnTaskDone(const TaskReport& report) override;
  void OnReplaysStopped(const ReplayKey& key) override;
  void OnOutcome(int32_t rank, const RankQueue::Outcome& outcome);
  void OnAnswer(int32_t rank, const absl::Status& answer);
  void OnOpDone(int32_t rank, const RankQueue::Outcome& outcome);
  void OnOpFailed(int32_t rank, const absl::Status& why);

  absl::Status OpenTransfer(int32_t index);
  ReplaySpec SpecOf(int32_t index) const;
  // The message of an instance, when it is one of this iteration.
  std::optional<TransferMessage> MessageOf(const TaskKey& key) const;
  uint32_t InstanceOf(const TransferMessage& message) const;
  void Do(const std::vector<ProgramProgress::Work>& work);
  void FailIteration(const absl::Status& why);
  void SendReport(const absl::Status& status);
  void TellIfReady();
  // Has a rank not answered yet?
  bool Asks() const;
  void TellIfStopped();
  const WorkerProgram& program() const;
  int64_t NowNs() const;  // Unix time

  const Ports ports_;
  const std::string worker_;
  const ProgramStart start_;
  const std::shared_ptr<const ProgramMemory> memory_;
  ProgramProgress progress_;
  std::vector<Transfer> transfers_;
  std::vector<Rank> ranks_;
  std::vector<std::shared_ptr<RankQueue>> queues_;
  absl::flat_hash_map<uint32_t, int32_t> transfer_of_plan_;

  int64_t iteration_ = -1;     // the last that was begun
  uint32_t rounds_ = 0;        // iterations that were begun here
  uint32_t messages_max_ = 1;  // of a transfer, in an iteration
  bool running_ = false;       // an iteration, not reported yet
  bool failed_ = false;
  bool stopping_ = false;
  bool stopped_ = false;
  Report report_;      // of the last iteration; kept for its memory
  absl::Status gone_;  // why a rank is not computed any more
};

}  // namespace crossmesh
