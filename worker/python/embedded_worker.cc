#include "worker/python/embedded_worker.h"

#include "common/base/deadline.h"
#include "common/mesh/mesh.h"
#include "common/python/raised_status.h"
#include "worker/memory/storage_table.h"
#include "worker/python/lent_buffers.h"
#include "worker/worker.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <unistd.h>

namespace crossmesh {
namespace nb = nanobind;
namespace {

// For so long a signal may wait for what it raises.
constexpr absl::Duration kSignalTime = absl::Milliseconds(20);
// Its process has the version that is installed, and would wait in vain.
constexpr absl::Duration kVersionRefusedMax = absl::Seconds(20);

absl::Duration DurationOf(std::optional<double> seconds) {
  return seconds.has_value() ? absl::Seconds(*seconds) : absl::InfiniteDuration();
}

}  // namespace

// A thread that waits without the GIL, until it has that again.
class EmbeddedWorker::Inside {
 public:
  explicit Inside(EmbeddedWorker& worker) : worker_(worker) {
    MutexLock lock(worker_.mutex_);
    ++worker_.inside_;
  }
  ~Inside() {
    MutexLock lock(worker_.mutex_);
    --worker_.inside_;
    worker_.changed_.SignalAll();
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  EmbeddedWorker& worker_;
};

EmbeddedWorker::EmbeddedWorker(WorkerOptions options)
    : process_(getpid()), name_(options.name), lent_(std::make_shared<LentBuffers>()) {
  options.computes_pipelines = true;
  if (!options.version_refused_max.has_value()) options.version_refused_max = kVersionRefusedMax;
  options.on_drained = [this] {
    MutexLock lock(mutex_);
    drained_ = true;
    changed_.SignalAll();
  };
  options.on_refused = [this](const absl::Status& why) {
    MutexLock lock(mutex_);
    refused_ = why;
    changed_.SignalAll();
  };
  absl::StatusOr<std::unique_ptr<Worker>> worker = absl::UnknownError("not made");
  {
    const nb::gil_scoped_release released;
    worker = Worker::Create(std::move(options));
  }
  worker_ = OrRaise(std::move(worker));
}

EmbeddedWorker::~EmbeddedWorker() {
  if (!IsOfThisProcess()) {
    // Its threads are not here, and would be waited for.
    [[maybe_unused]] const auto* const worker = worker_.release();
    [[maybe_unused]] const auto* const stopper = stopper_.release();
    return;
  }
  {
    const nb::gil_scoped_release released;
    stopper_ = nullptr;
    worker_ = nullptr;
  }
  lent_->Collect();
}

bool EmbeddedWorker::IsOfThisProcess() const { return getpid() == process_; }

void EmbeddedWorker::CheckProcess() const {
  if (IsOfThisProcess()) return;
  RaiseStatus(absl::FailedPreconditionError(absl::StrCat(
      "worker ", name_, ": expected process ", process_, ", which started it, found ", getpid(),
      "; a process that is forked off has none of its threads: start one "
      "there")));
}

std::string EmbeddedWorker::devices() const {
  CheckProcess();
  return DevicesToString(worker_->devices());
}

std::string EmbeddedWorker::execution_address() const {
  CheckProcess();
  return worker_->execution_address();
}

absl::Status EmbeddedWorker::refused() const {
  MutexLock lock(mutex_);
  return refused_;
}

absl::Status EmbeddedWorker::CheckRuns() const {
  MutexLock lock(mutex_);
  if (!stops_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("worker ", name_, ": expected one that runs, found one that was stopped"));
}

bool EmbeddedWorker::Await(std::optional<double> seconds, const WaitFor& wait) {
  CheckProcess();
  const Deadline deadline(DurationOf(seconds));
  for (;;) {
    const absl::Duration left = deadline.left();
    bool done = false;
    {
      const Inside inside(*this);
      const nb::gil_scoped_release released;
      done = wait(std::min(left, kSignalTime));
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (done || left == absl::ZeroDuration()) return done;
  }
}

bool EmbeddedWorker::Wait(std::optional<double> seconds) {
  const bool ended = Await(seconds, [this](absl::Duration timeout) {
    MutexLock lock(mutex_);
    const auto is_over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return drained_ || stops_ || !refused_.ok();
    };
    if (!is_over()) changed_.WaitFor(mutex_, timeout);
    return is_over();
  });
  OrRaise(refused());
  return ended;
}

void EmbeddedWorker::Stop(double drain_seconds) {
  CheckProcess();
  {
    MutexLock lock(mutex_);
    if (!std::exchange(stops_, true)) {
      stopper_ = std::make_unique<Thread>("stop", [this, drain_seconds] {
        worker_->Stop(absl::Seconds(drain_seconds));
        MutexLock ended(mutex_);
        stopped_ = true;
        changed_.SignalAll();
      });
    }
    changed_.SignalAll();
  }
  for (bool stopped = false; !stopped;) {
    {
      const nb::gil_scoped_release released;
      stopped = AwaitStopped(kSignalTime);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  lent_->Collect();
}

bool EmbeddedWorker::AwaitStopped(absl::Duration timeout) {
  MutexLock lock(mutex_);
  if (!stopped_ || inside_ > 0) changed_.WaitFor(mutex_, timeout);
  return stopped_ && inside_ == 0;
}

StorageKey EmbeddedWorker::KeyOf(const std::string& storage, const std::string& device) const {
  CheckProcess();
  const std::vector<DeviceId> devices = OrRaise(ParseDevices(device));
  if (devices.size() != 1 ||
      std::ranges::find(worker_->devices(), devices.front()) == worker_->devices().end()) {
    RaiseStatus(absl::InvalidArgumentError(
        absl::StrCat("device \"", device, "\": expected one of worker ", name_, ", ",
                     DevicesToString(worker_->devices()), ", found none of these")));
  }
  if (storage.empty()) {
    RaiseStatus(absl::InvalidArgumentError("storage: expected a name, found none"));
  }
  return {.name = storage, .device = devices.front()};
}

void EmbeddedWorker::Lend(const std::string& storage, const std::string& device,
                          nb::handle memory) {
  const StorageKey key = KeyOf(storage, device);
  OrRaise(CheckRuns());
  OrRaise(worker_->storages().Adopt(key, lent_->Lend(memory)));
}

void EmbeddedWorker::Release(const std::string& storage, const std::string& device,
                             double seconds) {
  const StorageKey key = KeyOf(storage, device);
  absl::Status status;
  Await(seconds, [&](absl::Duration timeout) {
    status = worker_->storages().Delete(key);
    if (!absl::IsFailedPrecondition(status)) return true;
    // A worker lets go of what an operation used soon after that has committed, without a word.
    MutexLock lock(mutex_);
    changed_.WaitFor(mutex_, std::min(timeout, absl::Milliseconds(1)));
    return false;
  });
  lent_->Collect();
  OrRaise(status);
}

StorageStatus EmbeddedWorker::Status(const std::string& storage, const std::string& device) const {
  return OrRaise(worker_->storages().Status(KeyOf(storage, device)));
}

std::unique_ptr<PipelineLoop> EmbeddedWorker::WaitForPipeline(std::optional<double> seconds) {
  absl::StatusOr<std::unique_ptr<PipelineLoop>> loop = absl::UnknownError("not waited for");
  Await(seconds, [&](absl::Duration timeout) {
    if (const absl::Status why = refused(); !why.ok()) {
      loop = why;
      return true;
    }
    loop = worker_->WaitForPipeline(timeout);
    return !absl::IsDeadlineExceeded(loop.status());
  });
  if (absl::IsDeadlineExceeded(loop.status())) {
    RaiseStatus(absl::DeadlineExceededError(absl::StrCat(
        "worker ", name_, ": expected a rank to compute within ", *seconds, " s, found none")));
  }
  return OrRaise(std::move(loop));
}

}  // namespace crossmesh
