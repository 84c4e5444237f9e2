#pragma once

#include "controller/service/session_table.h"
#include "crossmesh/v1/worker_service.pb.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// The controller's end of one session of one worker, whatever carries it: the carrier calls the
// functions that are named On..., one after the other, OnOver last; so what they alone use has no
// lock. The table outlives it.
class WorkerSession : public std::enable_shared_from_this<WorkerSession> {
 public:
  explicit WorkerSession(SessionTable& table) : table_(table) {}
  virtual ~WorkerSession() = default;

  // Any thread; they never block. Nothing is sent any more once it has ended.
  virtual void Tell(v1::WorkerSessionResponse response) = 0;
  // After what was told. Only the first counts.
  virtual void Finish(absl::Status status) = 0;

  void OnRequest(const v1::WorkerSessionRequest& request);
  // The worker sends nothing more, on purpose or because it is gone.
  void OnRequestsEnd();
  // Finished, or the worker is gone.
  void OnOver();

 private:
  const SessionTable::Options& options() const { return table_.options_; }

  void OnRegister(const v1::WorkerSessionRequest::Register& message);
  absl::Status Register(const v1::WorkerSessionRequest::Register& message);
  void RepeatDrain();
  void OnHeartbeat(const v1::WorkerSessionRequest::Heartbeat& heartbeat);
  void TellEnded(const v1::WorkerSessionRequest::Heartbeat& heartbeat);

  SessionTable& table_;
  std::string worker_;
  std::optional<uint64_t> session_;
  std::optional<absl::Duration> last_beat_;
  bool left_ = false;
};

}  // namespace crossmesh
