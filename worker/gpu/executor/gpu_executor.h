#pragma once

#include "common/event_loop/timer_id.h"
#include "worker/executor/task.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

class Communicator;
class CompiledPart;
class EventLoop;
class Gpu;
class GpuBinding;
class GpuExecution;
class LookPace;
class RegisteredStaging;
enum class CommunicatorState : uint8_t;
struct ExecutionResources;
struct GpuLegs;
struct GpuTaskSpec;
struct GpuTiles;

// Counts since creation; monotonic. Of tasks that were reported, but for looks.
struct GpuExecutorCounters {
  int64_t tasks_succeeded = 0;
  int64_t tasks_failed = 0;
  int64_t checksum_failures = 0;  // tasks whose bytes differ from their roots'
  int64_t stalls = 0;
  int64_t steps = 0;
  int64_t looks = 0;       // at what the GPU has done
  int64_t sent_bytes = 0;  // payload, to and from other ranks
  int64_t received_bytes = 0;
  int64_t copied_bytes = 0;
};

// Runs compiled parts on one GPU, one after the other in the order in which they were started. All
// it does is put on three streams and looked at from the loop: less often when a look finds little
// new, oftener when one came too late, and not at all while there is no task.
//
// A task that fails takes its communicator along, since its peers may be in the middle of a group:
// the owner is asked to stop it, and the buffers are given back, by the task's report, when the
// streams have passed what was on them. Tasks after it on the same communicator fail as well.
//
// Confined to the loop, on whose thread the Gpu was made. Destroyed when no task is left, and after
// the loop has stopped; or at the end of the process.
class GpuExecutor {
 public:
  struct Options {
    int32_t steps_ahead = 8;  // on the streams, of a task, that are not done; at least 1
    size_t tasks_max = 64;    // that were started and not reported
    // From a failure until its communicator is over and the streams are past it.
    absl::Duration end_limit = absl::Minutes(1);
    // Between two looks at the GPU: at least and at most.
    absl::Duration look_min = absl::Microseconds(2);
    absl::Duration look_max = absl::Milliseconds(1);
  };

  // All references must outlive the executor. Errors of the driver.
  static absl::StatusOr<std::unique_ptr<GpuExecutor>> Create(EventLoop& loop, Gpu& gpu,
                                                             const RegisteredStaging& staging,
                                                             const Options& options);
  ~GpuExecutor();
  GpuExecutor(const GpuExecutor&) = delete;
  GpuExecutor& operator=(const GpuExecutor&) = delete;

  // OK, or why nothing can be run any more: the GPU is lost to this process, or work on it does not
  // end. Buffers of the task that is reported at that time are in use until the process ends.
  const absl::Status& health() const { return health_; }

  // As GpuBinding::Create, for tasks of this executor.
  absl::StatusOr<std::shared_ptr<GpuBinding>> Bind(GpuLegs legs);
  absl::StatusOr<std::shared_ptr<GpuBinding>> Bind(std::shared_ptr<const CompiledPart> compiled,
                                                   GpuTiles tiles);

  // AlreadyExists when a task of this key is there; ResourceExhausted when too many are;
  // InvalidArgument as GpuExecution::Validate; health() unless it is OK. `observer`, the
  // communicator and its owner must outlive the task.
  absl::Status Start(GpuTaskSpec spec, TaskObserver& observer);
  // Ends the task with `why`. Does nothing when it is not known, or fails already.
  void Cancel(const TaskKey& key, const absl::Status& why);
  // Told by a communicator's owner whenever its state changes, for any reason, until it is over;
  // at once when the owner stops it, since what is stopped must not be used.
  void OnCommunicatorChange(const Communicator& communicator, CommunicatorState state,
                            const absl::Status& cause);

  // Bytes moved so far by a task, for progress; nothing when it is not known.
  std::optional<int64_t> MovedBytes(const TaskKey& key) const;
  // The same in steps of its compiled part.
  std::optional<int64_t> StepsDone(const TaskKey& key) const;
  const GpuExecutorCounters& counters() const { return counters_; }

 private:
  struct Task {
    std::unique_ptr<GpuExecution> execution;
    TimerId limit;  // the deadline; of one that fails, the end limit
    bool is_ending = false;
  };

  GpuExecutor(EventLoop& loop, Gpu& gpu, std::unique_ptr<ExecutionResources> shared,
              const Options& options);

  // Soon, and from the loop.
  void RequestLook();
  // Does what can be done, and comes again when something else may be.
  void Look();
  // Of the first task. Whether anything was done.
  bool Advance(Task& task);
  void AskToStop(GpuExecution& execution);
  void ReportThoseOver();
  void Report(Task task);
  void StartStallRound();
  GpuExecution* Find(const TaskKey& key) const;

  EventLoop& loop_;
  Gpu& gpu_;
  const Options options_;
  std::unique_ptr<ExecutionResources> shared_;
  std::deque<Task> tasks_;  // the first one is on the GPU
  TimerId stall_round_;     // of the first
  TimerId next_look_;
  const std::unique_ptr<LookPace> pace_;
  bool is_look_requested_ = false;
  absl::Status health_;
  GpuExecutorCounters counters_;
};

}  // namespace crossmesh
