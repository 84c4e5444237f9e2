#pragma once

#include "common/base/mutex.h"
#include "common/event_loop/event_loop.h"
#include "worker/pipeline/channel_memory.h"
#include "worker/pipeline/pipeline_loop.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// Hears of a rank's ops. Called on the data loop.
class RankListener {
 public:
  virtual ~RankListener() = default;
  // `rank`: index into WorkerProgram::ranks. Nanoseconds of Unix time.
  virtual void OnOpDone(int32_t rank, int64_t begin_ns, int64_t end_ns) = 0;
  virtual void OnOpFailed(int32_t rank, const absl::Status& why) = 0;
};

// Where a rank's ops are handed to the thread that computes them, and back. Keeps the program's
// memory for as long as that thread may use it. Thread-safe.
class RankQueue : public std::enable_shared_from_this<RankQueue> {
 public:
  // `data` must live until End; `listener` until Detach.
  RankQueue(EventLoop& data, RankListener& listener, std::shared_ptr<const ProgramMemory> memory,
            int32_t rank);

  // The program's side, on the data loop.

  // One at a time: the next when this one is done.
  void GiveOp(int64_t iteration, int32_t op);
  void GiveComplete(int64_t iteration);
  // The last that is given. With an error, what was not taken yet is dropped.
  void End(absl::Status why);
  // The listener hears nothing more.
  void Detach() { listener_ = nullptr; }

  // The thread's side.

  RankIndex rank() const { return rank_; }
  const std::vector<Op>& ops() const { return ops_; }
  PipelineStep Next();
  void Done();
  void Fail(const absl::Status& why);
  // Nobody computes any more.
  void Leave();
  // Whether End came within the time.
  bool WaitForEnd(absl::Duration timeout);

 private:
  void Tell(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnData();

  EventLoop& data_;
  RankListener* listener_;  // confined to the data loop
  const std::shared_ptr<const ProgramMemory> memory_;
  const int32_t index_;
  const RankIndex rank_;
  std::vector<Op> ops_;
  std::vector<PipelineOp> given_;  // by place among the ops; one at a time is with the thread

  Mutex mutex_;
  CondVar changed_;
  std::deque<PipelineStep> steps_ ABSL_GUARDED_BY(mutex_);
  bool computing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);  // of the end
  // Of the op that was computed last.
  int64_t begin_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t end_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status outcome_ ABSL_GUARDED_BY(mutex_);
};

// A queue as the process that computes sees it.
std::unique_ptr<PipelineLoop> MakePipelineLoop(std::shared_ptr<RankQueue> queue);

}  // namespace crossmesh
