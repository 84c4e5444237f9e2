#pragma once

#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/testing/status_matchers.h"
#include "worker/pipeline/pipeline_loop.h"
#include "worker/worker.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/time/time.h>
#include <gtest/gtest.h>

namespace crossmesh {

// A process that embeds a worker and computes its rank. It answers nothing while it hangs.
class EmbeddingProcess {
 public:
  EmbeddingProcess(const std::string& name, const std::string& controller) {
    absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Create({.name = name,
                                                                     .devices = {{name, 0}},
                                                                     .controllers = {controller},
                                                                     .computes_pipelines = true});
    EXPECT_OK(worker.status());
    worker_ = *std::move(worker);
    thread_ = Thread("process", [this] { Compute(); });
  }
  // Whatever hangs is not done any more.
  ~EmbeddingProcess() {
    worker_->Stop(absl::ZeroDuration());
    Answer();
    thread_.Join();
  }

  void HangAt(int64_t iteration, const std::string& op) {
    MutexLock lock(mutex_);
    hangs_at_ = absl::StrCat(iteration, " ", op);
  }
  // False when that takes longer than `limit`.
  bool WaitUntilItHangs(absl::Duration limit) {
    MutexLock lock(mutex_);
    while (!hangs_) {
      if (changed_.WaitFor(mutex_, limit)) return hangs_;
    }
    return true;
  }
  // When state is lost: to go on, or why not; nothing is no answer. OK from the start.
  void SetAnswer(std::optional<absl::Status> answer) {
    MutexLock lock(mutex_);
    answer_ = std::move(answer);
  }
  void Answer() {
    MutexLock lock(mutex_);
    hangs_at_.clear();
    changed_.SignalAll();
  }
  int64_t complete() {
    MutexLock lock(mutex_);
    return complete_;
  }
  // Which iterations it has begun, and what it was told before: "0", "rank 1 lost after 0".
  std::vector<std::string> told() {
    MutexLock lock(mutex_);
    return told_;
  }

 private:
  void Compute() {
    for (;;) {
      absl::StatusOr<std::unique_ptr<PipelineLoop>> loop = worker_->WaitForPipeline();
      if (!loop.ok()) return;
      for (PipelineStep step = (*loop)->Next(); step.kind != PipelineStep::Kind::kOver;
           step = (*loop)->Next()) {
        Do(**loop, step);
      }
    }
  }
  void Do(PipelineLoop& loop, const PipelineStep& step) {
    if (step.kind == PipelineStep::Kind::kOp || step.kind == PipelineStep::Kind::kPair) {
      WaitWhileItHangs(*step.op);
      loop.Done();
    } else if (step.kind == PipelineStep::Kind::kStateLost) {
      const std::optional<absl::Status> answer = AnswerTo(step);
      if (!answer.has_value()) return;
      if (answer->ok()) return loop.Done();
      loop.Fail(*answer);
    } else {
      MutexLock lock(mutex_);
      complete_++;
    }
  }
  void WaitWhileItHangs(const PipelineOp& op) {
    MutexLock lock(mutex_);
    const std::string iteration = absl::StrCat(op.iteration);
    if (told_.empty() || told_.back() != iteration) told_.push_back(iteration);
    while (hangs_at_ == absl::StrCat(iteration, " ", ToString(op.op))) {
      hangs_ = true;
      changed_.SignalAll();
      changed_.Wait(mutex_);
    }
  }
  std::optional<absl::Status> AnswerTo(const PipelineStep& step) {
    MutexLock lock(mutex_);
    told_.push_back(
        absl::StrCat("rank ", absl::StrJoin(step.lost_ranks, ","), " lost after ", step.iteration));
    return answer_;
  }

  std::unique_ptr<Worker> worker_;
  Thread thread_;
  Mutex mutex_;
  CondVar changed_;
  std::string hangs_at_ ABSL_GUARDED_BY(mutex_);
  bool hangs_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> answer_ ABSL_GUARDED_BY(mutex_) = absl::OkStatus();
  std::vector<std::string> told_ ABSL_GUARDED_BY(mutex_);
  int64_t complete_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace crossmesh
