#pragma once

#include "common/base/digest.h"
#include "common/plan/worker_part.h"
#include "controller/dispatch/task_communicator.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/container/btree_set.h>
#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// One worker's share in starting an attempt.
struct TaskStart {
  std::string operation_id;
  uint64_t operation = 0;
  uint64_t epoch = 0;
  uint32_t attempt = 1;
  uint64_t token_high = 0;
  uint64_t token_low = 0;
  std::shared_ptr<const WorkerPart> part;
  std::string source_storage;
  std::string destination_storage;
  bool create_destination = false;
  bool checksums = true;
  struct Peer {
    std::string worker;
    std::string data_address;
    std::vector<DeviceRank> devices;
  };
  std::shared_ptr<const std::vector<Peer>> peers;  // all workers of the attempt
  TaskCommunicators communicators;                 // empty: no GPU exchanges bytes
  absl::Duration deadline;
  absl::Duration stall_limit;
};

// What a worker sent to one other.
struct PeerFigures {
  std::string peer;
  int64_t sent_bytes = 0;
  double busy_seconds = 0;  // while something was under way that the peer had not taken
};

struct TaskFigures {
  int64_t sent_bytes = 0;
  int64_t received_bytes = 0;
  int64_t copied_bytes = 0;
  double bind_seconds = 0;
  double move_seconds = 0;
  double pack_seconds = 0;
  double unpack_seconds = 0;
  double checksum_seconds = 0;
  std::vector<PeerFigures> links;
  absl::btree_set<std::string> gpu_libraries = {};  // with their versions
};

// What a worker's task came to.
struct TaskOutcome {
  absl::Status status;
  std::vector<std::string> lost_peers;
  std::vector<DeviceRank> broken_devices;  // whose communicators are of no use any more
  TaskFigures figures;
};

// What a worker says of a task. Any thread; never from inside a call of TaskCall's methods.
class TaskListener {
 public:
  virtual ~TaskListener() = default;
  virtual void OnAccepted() = 0;
  virtual void OnDeviceDone(DeviceRank device, const absl::Status& status) = 0;
  virtual void OnReport(const TaskOutcome& outcome) = 0;
  virtual void OnResolved(const std::vector<DeviceRank>& devices, const absl::Status& status) = 0;
  // The call ended; nothing follows. OK after Acknowledge.
  virtual void OnCallEnded(const absl::Status& status) = 0;
};

// One Execute call to one worker. Thread-safe; methods never block. Destroying it does not cancel
// the worker's task.
class TaskCall {
 public:
  virtual ~TaskCall() = default;
  virtual void Cancel(const std::string& reason) = 0;
  virtual void Resolve(const std::vector<DeviceRank>& devices, bool commit) = 0;
  virtual void PeerLost(const std::string& worker, const std::string& reason) = 0;
  virtual void Acknowledge() = 0;
};

// The way to workers. The only place where tests put a mock.
class WorkerGateway {
 public:
  virtual ~WorkerGateway() = default;
  // Sends the start (and the part, when the worker asks for it). `listener` must live until
  // OnCallEnded.
  virtual std::unique_ptr<TaskCall> Execute(const std::string& worker_address,
                                            const TaskStart& start, TaskListener& listener) = 0;
};

}  // namespace crossmesh
