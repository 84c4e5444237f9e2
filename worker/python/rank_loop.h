#pragma once

#include "worker/pipeline/pipeline_loop.h"
#include "worker/python/embedded_worker.h"

#include <memory>
#include <optional>
#include <string>

#include <nanobind/nanobind.h>

namespace crossmesh {

// A PipelineLoop as Python has it: one thread at a time, which raises instead of ending the process
// where the loop must not be called so. Keeps the memory of its tensors, and the worker. The GIL
// must be held.
class RankLoop {
 public:
  RankLoop(std::shared_ptr<EmbeddedWorker> worker, std::unique_ptr<PipelineLoop> loop)
      : worker_(std::move(worker)), loop_(std::move(loop)) {}
  // Leaves, in the process that has the loop.
  ~RankLoop();
  RankLoop(const RankLoop&) = delete;
  RankLoop& operator=(const RankLoop&) = delete;

  const PipelineLoop& loop() const { return *loop_; }
  const EmbeddedWorker& worker() const { return *worker_; }

  // As PipelineLoop::Next. FailedPrecondition: the last step has no answer yet, another thread is
  // in here, or the loop was left; else as EmbeddedWorker::Await.
  const PipelineStep& Next();
  // Answers the last step. FailedPrecondition: it has an answer, or wants none.
  void Answer(const absl::Status& status);
  // As PipelineLoop::Leave.
  void Leave();

 private:
  absl::Status CheckNext() const;

  const std::shared_ptr<EmbeddedWorker> worker_;
  std::unique_ptr<PipelineLoop> loop_;
  PipelineStep step_;
  bool unanswered_ = false;
  bool waits_ = false;  // a thread is in Next
  bool left_ = false;
};

// A step as a tuple: its kind; its op and the backward op of a pair, each a tuple or None; the
// iteration; the lost ranks. `self` is the Python object of the loop, which arrays of tiles keep.
nanobind::tuple StepToPython(const PipelineStep& step, nanobind::handle self);

}  // namespace crossmesh
