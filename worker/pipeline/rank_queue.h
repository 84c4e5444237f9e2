#pragma once

#include "common/base/mutex.h"
#include "worker/pipeline/pipeline_loop.h"
#include "worker/pipeline/worker_program.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

class Clock;
class EventLoop;
struct ProgramMemory;

// Where a rank's ops are handed to the thread that computes them, and back. Keeps the program's
// memory for as long as that thread may use it. Thread-safe.
class RankQueue : public std::enable_shared_from_this<RankQueue> {
 public:
  // How an op came out, or a pair, and when it was computed; or the answer to a question.
  struct Outcome {
    absl::Status status;
    int64_t begin_ns = 0;  // Unix time
    int64_t end_ns = 0;
  };
  using OnOutcome = std::function<void(const Outcome&)>;

  // Both must live until End.
  struct Ports {
    EventLoop& data;
    const Clock& clock;
  };

  // `on_outcome` is called on the data loop, until Detach. `rank`:
  // index into WorkerProgram::ranks.
  RankQueue(const Ports& ports, std::shared_ptr<const ProgramMemory> memory, int32_t rank,
            OnOutcome on_outcome);

  // The program's side, on the data loop.

  // One at a time, with that which is fused with it: the next when this one is done.
  void GiveOp(int64_t iteration, int32_t op);
  void GiveComplete(int64_t iteration);
  // As PipelineStep::kStateLost; told by an outcome as ops are.
  void GiveStateLost(int64_t complete_iteration, const std::vector<RankIndex>& lost_ranks);
  // The last that is given. With an error, what was not taken yet is dropped.
  void End(absl::Status why);
  // Nothing is told any more.
  void Detach() { on_outcome_ = nullptr; }

  // The thread's side.

  RankIndex rank() const { return rank_; }
  const ProgramMemory& memory() const { return *memory_; }
  const WorkerProgram::Rank& program_rank() const { return program_rank_; }
  const std::vector<Op>& ops() const { return ops_; }
  PipelineStep Next();
  bool WaitForStep(absl::Duration timeout);
  void Done();
  void Fail(const absl::Status& why);
  // The process computes nothing more. Repeatable.
  void Leave();
  // Whether End came within the time.
  bool WaitForEnd(absl::Duration timeout);

 private:
  int64_t NowNs() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnData();

  const Ports ports_;
  OnOutcome on_outcome_;  // confined to the data loop
  const std::shared_ptr<const ProgramMemory> memory_;
  const WorkerProgram::Rank& program_rank_;  // of the memory's program
  const RankIndex rank_;
  std::vector<Op> ops_;
  std::vector<PipelineOp> given_;  // by place among the ops; one at a time is with the thread

  Mutex mutex_;
  CondVar changed_;
  // The next one first. There are hardly ever two, and a vector keeps its memory.
  std::vector<PipelineStep> steps_ ABSL_GUARDED_BY(mutex_);
  // Of the step that is with the thread until Done or Fail.
  std::optional<PipelineStep::Kind> unanswered_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool left_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);  // of the end
  Outcome outcome_ ABSL_GUARDED_BY(mutex_);   // of the op that was computed last
};

// A queue as the process that computes sees it.
std::unique_ptr<PipelineLoop> MakePipelineLoop(std::shared_ptr<RankQueue> queue);

}  // namespace crossmesh
