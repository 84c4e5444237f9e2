#pragma once

#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "worker/memory/storage_status.h"
#include "worker/pipeline/pipeline_loop.h"
#include "worker/worker_options.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/time/time.h>
#include <nanobind/nanobind.h>
#include <sys/types.h>

namespace crossmesh {

class LentBuffers;
class Worker;

// A worker in a process of Python. All methods raise exceptions of crossmesh.errors, are called
// with the GIL held, and raise FailedPreconditionError in a process that was forked off, which has
// none of the worker's threads. Those that block release the GIL, and end when a signal raises
// something. Thread-safe.
class EmbeddedWorker {
 public:
  // As Worker::Create.
  explicit EmbeddedWorker(WorkerOptions options);
  // As Stop; in a process that was forked off nothing.
  ~EmbeddedWorker();
  EmbeddedWorker(const EmbeddedWorker&) = delete;
  EmbeddedWorker& operator=(const EmbeddedWorker&) = delete;

  const std::string& name() const { return name_; }
  std::string devices() const;
  std::string execution_address() const;

  // As Worker::Stop; afterwards no other thread is inside of a method. When a signal raises
  // something, that goes on by itself.
  void Stop(double drain_seconds);
  // Until the controller has asked for a drain and nothing runs any more, or the worker was
  // stopped: true; false when the time is over. Raises why the controller refuses it.
  bool Wait(std::optional<double> seconds);

  // Of a device of this worker. As StorageTable::Adopt and LentBuffers::Lend; FailedPrecondition:
  // it was stopped.
  void Lend(const std::string& storage, const std::string& device, nanobind::handle memory);
  // As StorageTable::Delete, once nothing uses the storage; FailedPrecondition: something still
  // does when the time is over.
  void Release(const std::string& storage, const std::string& device, double seconds);
  // As StorageTable::Status.
  StorageStatus Status(const std::string& storage, const std::string& device) const;

  // As Worker::WaitForPipeline.
  std::unique_ptr<PipelineLoop> WaitForPipeline(std::optional<double> seconds);

  void CheckProcess() const;
  bool IsOfThisProcess() const;
  // Calls `wait`, which waits for at most the time that it is given and says whether it is done,
  // until it is, the time is over, or a signal raises something. False when the time is over.
  using WaitFor = std::function<bool(absl::Duration)>;
  bool Await(std::optional<double> seconds, const WaitFor& wait);

 private:
  class Inside;

  StorageKey KeyOf(const std::string& storage, const std::string& device) const;
  bool AwaitStopped(absl::Duration timeout);
  absl::Status refused() const;
  absl::Status CheckRuns() const;

  const pid_t process_;
  const std::string name_;
  const std::shared_ptr<LentBuffers> lent_;

  mutable Mutex mutex_;
  mutable CondVar changed_;
  absl::Status refused_ ABSL_GUARDED_BY(mutex_);
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;  // threads that wait in Await

  // After what its threads tell; both stay, unused, in a process that was forked off.
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<Thread> stopper_;
};

}  // namespace crossmesh
