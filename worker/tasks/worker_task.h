#pragma once

#include "crossmesh/v1/execution_service.pb.h"
#include "worker/executor/laid_out_part.h"
#include "worker/executor/task.h"
#include "worker/tasks/start_request.h"
#include "worker/tasks/task_leases.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// One task of this worker, from its start until it is forgotten: what it holds, what it has said,
// and which caller listens. Thread-compatible.
//
//   STARTING --OnAccepted--> RUNNING --OnReport--> ENDED
//
// Everything that is said is kept, so that a caller that comes again hears all of it. A destination
// is resolved when the task has ended, whenever that is asked for: until then the executor may read
// it for others.
class WorkerTask {
 public:
  enum class State { kStarting, kRunning, kEnded };

  WorkerTask(StartRequest request, std::shared_ptr<const LaidOutPart> part, TaskLeases leases,
             absl::Duration started);

  const StartRequest& request() const { return request_; }
  const LaidOutPart& part() const { return *part_; }
  State state() const { return state_; }
  absl::Duration started() const { return started_; }
  absl::Duration ended() const { return ended_; }  // when state() is kEnded
  // Of the controller that resolves it: of the one that started it, until another adopts it.
  uint64_t epoch() const { return epoch_; }
  bool has_caller() const { return caller_ != nullptr; }
  bool is_caller(const TaskCaller& caller) const { return caller_.get() == &caller; }
  bool resolved() const;  // all destinations

  // What a runner is to do, in a worker of this name. InvalidArgument: a peer's device is none of
  // the part's.
  absl::StatusOr<TaskSpec> Specify(absl::string_view worker) const;

  // Says everything again, to `caller`; one that was attached before is ended with Aborted.
  void Attach(std::shared_ptr<TaskCaller> caller);
  // The same, for a controller of a higher epoch that takes the task over.
  void Adopt(std::shared_ptr<TaskCaller> caller, uint64_t epoch);
  // Does nothing unless `caller` is attached.
  void Detach(const TaskCaller& caller);
  // Ends the caller's call, if there is one.
  void EndCall(const absl::Status& status);

  // Of the first source that a process has used since the task began, as Lease::CheckUndisturbed.
  absl::Status CheckSourcesUndisturbed() const { return leases_.CheckSourcesUndisturbed(); }

  void OnAccepted();
  void OnDeviceDone(const DeviceReport& report);
  // Devices whose sources have given memory back; before the report, which is to name them.
  void OnSourcesReleased(std::span<const DeviceRank> devices, v1::TaskReport& report);
  void OnReport(v1::TaskReport report, absl::Duration now);

  // Answers by Resolved: FailedPrecondition when a device to commit has not come out well, or was
  // resolved otherwise; InvalidArgument for one that the task does not write. Devices before the
  // first bad one are resolved all the same.
  void Resolve(std::span<const int32_t> devices, bool commit);
  // Abandons what is not resolved. The task must have ended.
  void AbandonRest();

 private:
  enum class Resolution { kOpen, kCommitted, kAbandoned };
  struct Destination {
    std::optional<absl::Status> outcome;  // once the device is done
    Resolution resolution = Resolution::kOpen;
  };
  struct ResolveRequest {
    std::vector<DeviceRank> devices;
    bool commit = false;
    friend bool operator==(const ResolveRequest&, const ResolveRequest&) = default;
  };

  void ResolveNow(const ResolveRequest& request);
  absl::Status ResolveDevice(DeviceRank device, bool commit);
  // Whoever attaches from now on does not hear that the device has come out well.
  void UnsayDone(DeviceRank device);
  // When all of this worker has been committed, a source that was given up goes.
  void ConsumeIfCommitted();
  std::string NameOf(DeviceRank device) const;
  void Say(v1::ExecuteResponse response);

  const StartRequest request_;
  const std::shared_ptr<const LaidOutPart> part_;
  const absl::Duration started_;

  uint64_t epoch_;
  TaskLeases leases_;
  State state_ = State::kStarting;
  absl::Duration ended_;
  absl::btree_map<DeviceRank, Destination> destinations_;
  std::vector<ResolveRequest> asked_early_;
  std::vector<v1::ExecuteResponse> said_;
  std::shared_ptr<TaskCaller> caller_;  // null: none is attached
};

}  // namespace crossmesh
