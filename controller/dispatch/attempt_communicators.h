#pragma once

#include "common/base/clock.h"
#include "common/communicators/communicator_key.h"
#include "controller/dispatch/communicator_leases.h"
#include "controller/dispatch/planned_reshard.h"
#include "controller/dispatch/task_queue.h"
#include "controller/membership/worker_registry.h"
#include "crossmesh/v1/execution_service.pb.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// Over which some GPUs of a plan exchange their bytes. Immutable.
struct TaskCommunicator {
  CommunicatorKey key;
  std::vector<DeviceRank> devices;  // by rank
};
using TaskCommunicators = std::vector<TaskCommunicator>;

// The communicators over which the GPUs of one attempt of an operation exchange their bytes: wanted
// before its tasks start, leased while they run, given back when the attempt is over. An attempt
// that moves no bytes between GPUs has none. Confined to the queue; shared by its attempt and by
// waits in progress.
class AttemptCommunicators : public std::enable_shared_from_this<AttemptCommunicators> {
 public:
  // Time that a GPU's process which has ended has to be replaced, and between two looks.
  static constexpr absl::Duration kProcessReturnTime = absl::Seconds(15);
  static constexpr absl::Duration kProcessPause = absl::Milliseconds(200);

  struct Options {
    CommunicatorLeases& leases;
    TaskQueue& queue;
    const Clock& clock;
    uint64_t epoch = 0;
    std::string operation;  // id
    size_t attempt = 1;
  };
  explicit AttemptCommunicators(Options options) : options_(std::move(options)) {}

  // What is called, once, with the outcome of a try.
  struct Outcome {
    std::function<void(const absl::Status&)> done;  // OK: they are there; else they cannot be had
    // A GPU's process is being replaced: workers are to be looked up anew, for another try.
    std::function<void()> again;
  };
  // Gets those of a plan whose devices belong to `workers`; calls the outcome now or later.
  void Get(const PlannedReshard& planned, std::span<const WorkerRecord> workers, Outcome outcome);
  // Why the last try failed; OK: none has.
  const absl::Status& obstacle() const { return obstacle_; }
  bool waiting() const { return waiting_; }
  // The operation's deadline has passed while it waited.
  absl::Status TooLate() const;

  // What a worker is told of them.
  void WriteTo(v1::ExecuteRequest::Start& start) const;
  // The worker's task says that the communicators of these of its devices are broken.
  void OnBroken(std::span<const DeviceRank> devices, const absl::Status& why);
  // Gives the leases back, or the wait for them up. The workers' devices whose tasks have not ended
  // may still use their communicators, which are then of no use to others.
  struct BusyTask {
    std::string worker;
    std::vector<DeviceRank> devices;
  };
  void Return(const std::vector<BusyTask>& busy);

 private:
  void OnLeased(const absl::Status& status);
  void TryAgain(const absl::Status& why);
  std::string LeaseName() const;

  const Options options_;
  Outcome outcome_;
  TaskCommunicators communicators_;       // wanted or leased, if there are any
  std::optional<absl::Duration> wanted_;  // when first
  absl::Status obstacle_;
  bool waiting_ = false;
  bool over_ = false;
};

}  // namespace crossmesh
