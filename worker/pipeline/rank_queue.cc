#include "worker/pipeline/rank_queue.h"

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/deadline.h"
#include "common/event_loop/event_loop.h"
#include "worker/pipeline/transfer_memory.h"

#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/time/clock.h>

namespace crossmesh {
namespace {

void AddTensors(const ProgramMemory& memory, Side side,
                const std::vector<TransferMessage>& messages,
                std::vector<PipelineTensor>& tensors) {
  for (const TransferMessage& message : messages) {
    const int32_t buffer = message.index % memory.program->transfers[message.transfer].buffers;
    for (PipelineTensor& tensor : memory.transfers[message.transfer].Tensors(side, buffer)) {
      tensors.push_back(std::move(tensor));
    }
  }
}

class QueuedLoop final : public PipelineLoop {
 public:
  explicit QueuedLoop(std::shared_ptr<RankQueue> queue) : queue_(std::move(queue)) {}
  ~QueuedLoop() override { queue_->Leave(); }

  RankIndex rank() const override { return queue_->rank(); }
  const std::vector<Op>& ops() const override { return queue_->ops(); }
  PipelineStep Next() override { return queue_->Next(); }
  bool WaitForNext(absl::Duration timeout) override { return queue_->WaitForStep(timeout); }
  void Done() override { queue_->Done(); }
  void Fail(const absl::Status& why) override { queue_->Fail(why); }
  void Leave() override { queue_->Leave(); }

 private:
  const std::shared_ptr<RankQueue> queue_;
};

}  // namespace

RankQueue::RankQueue(const Ports& ports, std::shared_ptr<const ProgramMemory> memory, int32_t rank,
                     OnOutcome on_outcome)
    : ports_(ports),
      on_outcome_(std::move(on_outcome)),
      memory_(std::move(memory)),
      program_rank_(memory_->program->ranks[rank]),
      rank_(program_rank_.rank) {
  for (const WorkerProgram::RankOp& op : program_rank_.ops) {
    ops_.push_back(op.op);
    PipelineOp& given = given_.emplace_back(PipelineOp{.op = op.op,
                                                       .name = op.Name(),
                                                       .place = static_cast<int32_t>(given_.size()),
                                                       .samples = op.samples,
                                                       .seconds = op.seconds});
    AddTensors(*memory_, Side::kDestination, op.inputs, given.inputs);
    AddTensors(*memory_, Side::kSource, op.outputs, given.outputs);
  }
}

void RankQueue::GiveOp(int64_t iteration, int32_t op) {
  MutexLock lock(mutex_);
  if (ended_) return;
  PipelineStep step{.kind = PipelineStep::Kind::kOp, .op = &given_[op]};
  given_[op].iteration = iteration;
  if (ops_[op].is_fused) {
    step.kind = PipelineStep::Kind::kPair;
    step.backward = &given_[op + 1];
    given_[op + 1].iteration = iteration;
  }
  steps_.push_back(std::move(step));
  changed_.SignalAll();
}

void RankQueue::GiveComplete(int64_t iteration) {
  MutexLock lock(mutex_);
  steps_.push_back({.kind = PipelineStep::Kind::kComplete, .iteration = iteration});
  changed_.SignalAll();
}

void RankQueue::GiveStateLost(int64_t complete_iteration,
                              const std::vector<RankIndex>& lost_ranks) {
  MutexLock lock(mutex_);
  steps_.push_back({.kind = PipelineStep::Kind::kStateLost,
                    .iteration = complete_iteration,
                    .lost_ranks = lost_ranks});
  changed_.SignalAll();
}

void RankQueue::End(absl::Status why) {
  MutexLock lock(mutex_);
  if (std::exchange(ended_, true)) return;
  if (!why.ok()) steps_.clear();
  why_ = std::move(why);
  changed_.SignalAll();
}

PipelineStep RankQueue::Next() {
  MutexLock lock(mutex_);
  CHECK(unanswered_ != PipelineStep::Kind::kOp) << "Next before Done, in rank " << rank_;
  if (unanswered_.has_value()) {
    Tell(absl::FailedPreconditionError("its process went on without an answer"));
  }
  while (steps_.empty() && !ended_) changed_.Wait(mutex_);
  // What was given before the end is handed out first.
  if (steps_.empty()) return {.kind = PipelineStep::Kind::kOver, .why = why_};
  PipelineStep step = std::move(steps_.front());
  steps_.erase(steps_.begin());
  if (step.kind != PipelineStep::Kind::kComplete) unanswered_ = step.kind;
  outcome_.begin_ns = NowNs();
  return step;
}

bool RankQueue::WaitForStep(absl::Duration timeout) {
  const Deadline deadline(timeout);
  MutexLock lock(mutex_);
  while (steps_.empty() && !ended_) {
    if (deadline.passed()) return false;
    changed_.WaitFor(mutex_, deadline.left());
  }
  return true;
}

void RankQueue::Done() {
  MutexLock lock(mutex_);
  Tell(absl::OkStatus());
}

void RankQueue::Fail(const absl::Status& why) {
  MutexLock lock(mutex_);
  Tell(why.ok() ? absl::UnknownError("failed, and said no reason") : why);
}

// After the end nobody hears of it, and the clock may be gone.
int64_t RankQueue::NowNs() const { return ended_ ? 0 : absl::ToUnixNanos(ports_.clock.Now()); }

void RankQueue::Tell(const absl::Status& why) {
  CHECK(std::exchange(unanswered_, std::nullopt).has_value())
      << "an op was ended that was not begun, in rank " << rank_;
  outcome_.end_ns = NowNs();
  outcome_.status = why;
  // Under the lock, because the loop may go once End was called.
  if (!ended_) ports_.data.Post([queue = shared_from_this()] { queue->OnData(); });
}

void RankQueue::Leave() {
  MutexLock lock(mutex_);
  if (std::exchange(left_, true)) return;
  unanswered_.reset();
  // The program may not have heard of a failure yet, which says more.
  if (outcome_.status.ok()) {
    outcome_.status = absl::CancelledError("the process has left the pipeline");
  }
  if (!ended_) ports_.data.Post([queue = shared_from_this()] { queue->OnData(); });
}

void RankQueue::OnData() {
  if (on_outcome_ == nullptr) return;
  Outcome outcome;
  {
    MutexLock lock(mutex_);
    outcome = outcome_;
  }
  on_outcome_(outcome);
}

bool RankQueue::WaitForEnd(absl::Duration timeout) {
  const Deadline deadline(timeout);
  MutexLock lock(mutex_);
  while (!ended_) {
    if (deadline.passed()) return false;
    changed_.WaitFor(mutex_, deadline.left());
  }
  return true;
}

std::unique_ptr<PipelineLoop> MakePipelineLoop(std::shared_ptr<RankQueue> queue) {
  return std::make_unique<QueuedLoop>(std::move(queue));
}

}  // namespace crossmesh
