// A pipeline's run in one process, without workers: for tests.

#pragma once

#include "common/base/mutex.h"
#include "examples/pipeline_training/model.h"
#include "planner/pipeline/planning/planned_pipeline.h"
#include "worker/pipeline/pipeline_loop.h"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <absl/base/thread_annotations.h>
#include <absl/status/status.h>

namespace crossmesh::training {

// The loops of all ranks of a plan. Each follows its row of the schedule; what crosses is put
// together from the tiles of the one layout, which must have all of it and agree where they
// overlap, and cut into those of the other. Thread-safe; must outlive its loops. Tensors are F32 of
// two dimensions, and each stage has a rank of its own.
class PlannedLoops {
 public:
  struct Options {
    int64_t first_iteration = 0;
    int64_t iterations = 1;
    // What each loop begins with, as after a run that was cut short.
    std::optional<int64_t> complete_iteration;
    // Not empty: each loop asks whether its process goes on without the state of these ranks.
    std::vector<RankIndex> lost_ranks;
    // The run is cut short when so many ops are done, all ranks together.
    std::optional<int64_t> ops_max;
    // Ranks that are told again that the iteration which was cut short at its end is complete.
    std::set<RankIndex> told;
  };

  PlannedLoops(std::shared_ptr<const PlannedPipeline> planned, Options options);

  std::unique_ptr<PipelineLoop> LoopOf(RankIndex rank);

 private:
  class Loop;
  using Message = std::vector<Matrix>;                           // whole, by tensor of the edge
  using MessageKey = std::pair<TransferIndex, MicrobatchIndex>;  // of the iteration that runs

  // For loops.
  absl::Status why();
  std::deque<PipelineStep> FirstSteps() const;
  absl::Status WaitForMessage(const MessageKey& key, Message& message);
  absl::Status WaitForBarrier(RankIndex rank, int64_t iteration);
  void OnDone(std::vector<std::pair<MessageKey, Message>> messages);
  void Cut(const absl::Status& why);

  const std::shared_ptr<const PlannedPipeline> planned_;
  const Options options_;

  Mutex mutex_;
  CondVar changed_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);  // an error once it is cut short
  std::map<MessageKey, Message> messages_ ABSL_GUARDED_BY(mutex_);
  int64_t ops_done_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace crossmesh::training
