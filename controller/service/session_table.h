#pragma once

#include "common/base/mutex.h"
#include "controller/membership/registration_gate.h"

#include <cstdint>
#include <memory>
#include <string>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

class Clock;
class ControllerMetrics;
class RunningOperation;
class TaskQueue;
class WorkerRegistry;
class WorkerSession;
struct WorkerRecord;
template <typename Running>
class RunningTable;

// The sessions of workers: one stream per worker, on which it registers and then lives.
// Thread-safe.
class SessionTable {
 public:
  static constexpr size_t kDataAddressBytesMax = 4096;
  static constexpr size_t kInterfacesMax = 64;
  static constexpr size_t kInterfaceBytesMax = 63;
  static constexpr size_t kGpusMax = 1024;
  static constexpr size_t kDescribedHostBytesMax = size_t{256} << 10;
  // A worker whose stream breaks is lost when it has not come back after this time: connections may
  // be cut by age at any moment.
  static constexpr absl::Duration kReturnTime = absl::Milliseconds(500);

  struct Options {
    WorkerRegistry& registry;
    RunningTable<RunningOperation>& operations;
    TaskQueue& queue;
    const Clock& clock;
    ControllerMetrics& metrics;
    uint64_t epoch = 0;
    RegistrationGate::Options gate = {};
  };
  explicit SessionTable(const Options& options) : options_(options), gate_(options.gate) {}

  // Tells the worker to finish what it runs and leave.
  void TellToDrain(const std::string& worker);
  // Takes that back. False: it has no session.
  bool TellToUndrain(const std::string& worker);
  // Ends the worker's session, if it has one.
  void Evict(const std::string& worker);
  // Ends all sessions, without the loss of their workers, and takes no new ones.
  void Close(const absl::Status& why);

 private:
  friend class WorkerSession;

  // Unavailable, with when it is to come again: more come than can be served.
  absl::Status CheckAdmission(const WorkerRecord& worker);
  // False when the table is closed. The worker's session before, if any, ends: it is superseded.
  bool Enter(const std::string& worker, std::shared_ptr<WorkerSession> session);
  void Leave(const std::string& worker, const WorkerSession& session);
  bool IsClosed();
  std::shared_ptr<WorkerSession> Find(const std::string& worker);  // null: it has none
  void CountSessions(int64_t sessions);

  const Options options_;

  Mutex mutex_;
  RegistrationGate gate_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::shared_ptr<WorkerSession>> sessions_
      ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);  // why; OK: open
};

}  // namespace crossmesh
