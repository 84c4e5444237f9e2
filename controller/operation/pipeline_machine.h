#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

enum class PipelineRunState : uint8_t {
  kPreparing,
  kRunning,
  kWaiting,
  kDone,
  kFailed,
  kStopped,
};
bool IsTerminal(PipelineRunState state);

// What is on record of a run, for the controller that may have to take it up.
struct PipelineProgress {
  std::optional<int64_t> complete;  // the last iteration that is complete everywhere
  std::optional<int64_t> begun;     // the last one that may have been begun

  friend bool operator==(const PipelineProgress&, const PipelineProgress&) = default;
};

// The life of one pipeline's run: events in, actions out. Pure: no clock, no I/O, no threads.
// Thread-compatible; its owner feeds it one event at a time.
//
//   PREPARING --all accepted--> RUNNING --an iteration fails--> WAITING --all accepted--> RUNNING
//   RUNNING --the last iteration is complete, all calls ended--> DONE
//   any of them --> FAILED | STOPPED
//
// Every worker has a call, in which its program runs. An iteration is complete when all workers
// say so; it fails, for all of them, with the first worker that says otherwise, is lost, or ends
// its call, or when its time is over. Then all programs are stopped, and only when all calls have
// ended (those that do not are cancelled) the workers are waited for, and the programs started
// again for the next iteration. What fails before any iteration is tried again as well, unless a
// worker refuses its program.
//
// Workers are told that an iteration is complete, and to begin another one, only when that is on
// record: so a controller that takes the run up knows all that processes may know. It begins above
// every number that may have been tried.
class PipelineMachine {
 public:
  // Most positions of ranks that an error tells.
  static constexpr int kPositionsMax = 64;

  struct Options {
    int64_t iterations = 1;  // at least 1
    bool stop_at_failure = false;
  };

  // What a timer is for. There is one for each.
  enum class Wait : uint8_t {
    kWorkers,    // for all to be there again, from a failure: the start that runs then is the last
    kStart,      // for all workers to accept
    kIteration,  // for all workers to report
    kEnd,        // for all calls to end
  };

  // Events, in the order in which they happened. Those of calls are of the present generation.
  struct TakenUp {  // the first one, of a run that another controller has left
    PipelineProgress progress;
  };
  struct WorkersReady {  // all are there, and their programs are made
    std::vector<std::string> workers;
  };
  struct WorkersMissing {  // while they are waited for: why
    absl::Status status;
  };
  struct PreparationFailed {  // there is no plan, or no program for it
    absl::Status status;
  };
  struct Accepted {
    std::string worker;
  };
  struct Reported {
    std::string worker;
    int64_t iteration = 0;
    absl::Status status;
    std::vector<std::string> positions;  // of its ranks, where it is not complete
  };
  struct ProgressRecorded {  // or, with an error, never will be: this controller is replaced
    absl::Status status;
  };
  struct CallEnded {  // nothing follows from this worker in this generation
    std::string worker;
    absl::Status status;
  };
  struct WorkerGone {  // its session with the controller is over
    std::string worker;
    absl::Status status;
  };
  struct TimePassed {
    Wait wait{};
  };
  struct StopRequested {
    bool now = false;  // otherwise after the iteration that runs
    std::string reason;
  };
  using Event =
      std::variant<TakenUp, WorkersReady, WorkersMissing, PreparationFailed, Accepted, Reported,
                   ProgressRecorded, CallEnded, WorkerGone, TimePassed, StopRequested>;

  // Actions, to be carried out in order.
  struct StartPrograms {     // then Accepted or CallEnded, of each worker
    int32_t generation = 1;  // counts from 1
  };
  struct RecordProgress {  // then ProgressRecorded
    PipelineProgress progress;
  };
  struct BeginIteration {  // then Reported or CallEnded, of each worker
    int64_t iteration = 0;
  };
  struct StopPrograms {  // in all calls that have not ended; then CallEnded
    std::string reason;  // empty: the run is done
  };
  struct CancelCall {  // then CallEnded
    std::string worker;
  };
  struct AwaitWorkers {};  // then WorkersReady, PreparationFailed, or WorkersMissing any number of
                           // times before; given up by the end of the run
  struct StartTimer {      // anew, where it runs already; then TimePassed
    Wait wait{};
  };
  struct EndIteration {  // a tried one; OK: complete
    int64_t iteration = 0;
    absl::Status status;
  };
  struct Publish {};  // clients that watch may want to know
  struct Finish {};   // terminal: report, forget
  using Action = std::variant<StartPrograms, RecordProgress, BeginIteration, StopPrograms,
                              CancelCall, AwaitWorkers, StartTimer, EndIteration, Publish, Finish>;

  explicit PipelineMachine(const Options& options) : options_(options) {}

  // What to do now, in order. Events that came too late or twice give no action.
  std::vector<Action> Handle(const Event& event);

  PipelineRunState state() const { return state_; }
  // Why the run FAILED or was STOPPED; OK before, and when it is DONE.
  const absl::Status& error() const { return error_; }

 private:
  enum class Phase : uint8_t {
    kAwaiting,   // the plan, or workers; no call is open
    kStarting,   // calls are open, not all accepted
    kRecording,  // all accepted, nothing runs until the progress is on record
    kIterating,  // an iteration runs
    kEnding,     // programs are stopped, calls end
  };
  struct Worker {
    bool accepted = false;
    bool reported = false;  // the iteration that runs, complete
    bool ended = false;
    std::vector<std::string> positions;
  };

  void On(const TakenUp& event);
  void On(const WorkersReady& event);
  void On(const WorkersMissing& event);
  void On(const PreparationFailed& event);
  void On(const Accepted& event);
  void On(const Reported& event);
  void On(const ProgressRecorded& event);
  void On(const CallEnded& event);
  void On(const WorkerGone& event);
  void On(const TimePassed& event);
  void On(const StopRequested& event);

  // Null: no such call is open.
  Worker* FindOpen(const std::string& worker);
  bool all_ended() const;
  void Record();
  void BeginNext();
  // The iteration that runs, or the start, has failed: of the first cause only. What is being
  // recorded comes first.
  void Fail(const absl::Status& cause);
  void GiveUp(const absl::Status& cause);
  // One that was tried.
  void FailIteration(const absl::Status& why);
  // Does the run end with an iteration that has failed just now?
  bool EndsAtFailure() const;
  absl::Status Stopped() const;
  void StopAll(const std::string& reason);
  // When all calls have ended: what has failed is told, and what follows begins.
  void Settle();
  void WaitForWorkers();
  void OnWorkersTooLate();
  absl::Status NotThereInTime() const;
  absl::Status WithPositions() const;
  // The workers for which `has` is false: "w0, w1".
  std::string Lacking(bool Worker::* has) const;
  void End(PipelineRunState state, absl::Status error);

  const Options options_;
  PipelineRunState state_ = PipelineRunState::kPreparing;
  Phase phase_ = Phase::kAwaiting;
  int32_t generation_ = 0;
  int64_t iteration_ = 0;            // that runs, or is the next
  bool tried_ = false;               // it was begun
  bool is_complete_ = false;         // everywhere, and that is not on record yet
  absl::Status meanwhile_;           // what failed while progress was recorded
  std::optional<int64_t> complete_;  // the last iteration that is, on record
  absl::Status cause_;               // why programs are stopped; OK: the run is done
  absl::Status failure_;             // of the last iteration that failed; told at once, or never
  bool awaits_workers_ = false;      // since the timer of kWorkers was started
  bool too_late_ = false;            // since it has run out
  absl::Status missing_;  // why workers are still waited for, or why the last start failed
  absl::btree_map<std::string, Worker> workers_;  // of the present generation
  std::optional<std::string> stop_reason_;        // a client wants the run to stop
  absl::Status refusal_;                          // a worker's, of its program
  absl::Status error_;
  std::vector<Action> actions_;  // of the event being handled
};

}  // namespace crossmesh
