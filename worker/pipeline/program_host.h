#pragma once

#include "common/base/byte_count.h"
#include "common/base/mutex.h"
#include "common/mesh/device.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

class Arena;
class Clock;
class EventLoop;
class MemoryBudget;
class PartReplayer;
class PipelineLoop;
class RankQueue;
class ServedProgram;
struct ProgramMemory;
struct ProgramStart;
struct WorkerProgram;

// What a worker's programs need of it: processes that compute, and memory. Thread-safe.
class ProgramHost {
 public:
  struct Options {
    std::string worker;
    uint64_t incarnation = 0;       // as the worker registers
    std::vector<DeviceId> devices;  // in host memory: those that programs may use
    bool computes = false;          // a process waits for loops
  };
  struct Ports {
    EventLoop& control;
    EventLoop& data;
    PartReplayer& replayer;  // on the data loop
    const Clock& clock;
    MemoryBudget& memory;  // of what programs have beside messages
    // On the control loop: whether a controller of this epoch is obeyed, from now on no lower one.
    std::function<absl::Status(uint64_t epoch)> obey;
    // As TransferMemory::MakeArena.
    std::function<absl::StatusOr<std::shared_ptr<Arena>>(const DeviceId&, ByteCount)> make_arena;
  };

  ProgramHost(Options options, Ports ports)
      : options_(std::move(options)), ports_(std::move(ports)) {}

  EventLoop& control() const { return ports_.control; }
  EventLoop& data() const { return ports_.data; }
  PartReplayer& replayer() const { return ports_.replayer; }
  const Clock& clock() const { return ports_.clock; }
  const std::string& worker() const { return options_.worker; }

  // Unavailable: it is for the process that had the worker's name and address before, of which
  // this one knows nothing.
  absl::Status CheckIsMeant(const ProgramStart& start) const;
  // On the control loop; as Ports::obey.
  absl::Status Obey(uint64_t epoch) const { return ports_.obey(epoch); }
  // Gives up programs of the same run that were started before this one, and calls `then` on the
  // control loop once one of them has left; false: there is none. FailedPrecondition: one was
  // started after it.
  absl::StatusOr<bool> GiveUpOlder(const ProgramStart& start, std::function<void()> then);
  // Decodes and proves the program, and makes its memory. FailedPrecondition: no process computes
  // here; InvalidArgument: AdmitProgram, and a device that is none of this worker's in host memory;
  // Unavailable: the worker stops; ResourceExhausted: as AdmitProgram and TransferMemory::Create.
  absl::StatusOr<std::shared_ptr<const ProgramMemory>> Prepare(const ProgramStart& start,
                                                               const std::string& bytes) const;

  // Those of a program that the process is to compute.
  void Offer(const std::vector<std::shared_ptr<RankQueue>>& queues);
  // The next rank to be computed here; null: there is none now.
  std::unique_ptr<PipelineLoop> TakeLoop();
  // The same; blocks. Cancelled after Stop; DeadlineExceeded: none came.
  absl::StatusOr<std::unique_ptr<PipelineLoop>> WaitForLoop(absl::Duration timeout);

  // Keeps a program from its start to Leave, which returns it.
  void Enter(const std::shared_ptr<ServedProgram>& program, const ProgramStart& start);
  std::shared_ptr<ServedProgram> Leave(ServedProgram* program);
  // Gives all programs up and starts no more; waits until they have left, at most `timeout`.
  void Stop(absl::Duration timeout);

 private:
  // Of all starts of a run: by epoch, then by number.
  using Order = std::pair<uint64_t, uint64_t>;
  struct Entered {
    std::shared_ptr<ServedProgram> program;
    std::string run_id;
    Order order;
    std::vector<std::function<void()>> on_left;
  };

  std::unique_ptr<PipelineLoop> TakeLoopLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckRuns(const ProgramStart& start) const;
  absl::Status CheckDevices(const WorkerProgram& program) const;

  const Options options_;
  const Ports ports_;

  mutable Mutex mutex_;
  CondVar changed_;
  absl::flat_hash_map<ServedProgram*, Entered> programs_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<RankQueue>> offered_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace crossmesh
