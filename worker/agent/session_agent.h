#pragma once

#include "common/base/backoff.h"
#include "common/event_loop/event_loop.h"
#include "common/metrics/worker_metrics.h"
#include "common/rpc/controller_route.h"
#include "crossmesh/v1/worker_service.pb.h"
#include "worker/agent/session_call.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// What the agent needs of its worker. Called on the agent's loop.
class SessionHost {
 public:
  using Heartbeat = v1::WorkerSessionRequest::Heartbeat;

  virtual ~SessionHost() = default;
  // Brings what may have changed since the agent was made up to date.
  virtual void Refresh(v1::WorkerSessionRequest::Register& registration) = 0;
  // For the controller of this epoch. Calls `done` on the loop, now or later.
  virtual void MakeHeartbeat(uint64_t epoch, absl::AnyInvocable<void(Heartbeat)> done) = 0;
  // The controller asks the worker to finish what runs and to leave.
  virtual void OnDrain() = 0;
  // It takes that back.
  virtual void OnUndrain() = 0;
  // Of the operations that a heartbeat named these have ended at the controller of this epoch.
  virtual void OnOperationsEnded(uint64_t epoch, const std::vector<std::string>& operations) = 0;
  // The name, or a device, is another process's, which goes on, or the controller is of a version
  // that refuses this one: the agent does not try again.
  virtual void OnRefused(const absl::Status& why) = 0;
};

// Keeps this worker's session with a controller: registers, sends heartbeats at the interval that
// the controller says, and comes again when the session breaks, to the controller that leads or to
// the next one of the list, after a pause with full jitter. After a heartbeat that others may send
// at the same moment the next one comes by chance within the interval, so that thousands of workers
// do not go on in step. While its name or a device belongs to another process it comes again as
// long as that one may be gone without its controller's knowing. Confined to its loop.
class SessionAgent {
 public:
  // Between tries to reach a controller.
  static constexpr absl::Duration kReconnectPauseMax = absl::Seconds(3);

  struct Options {
    std::vector<std::string> controllers;  // each as ParseAddressList, at least one
    v1::WorkerSessionRequest::Register registration;
    // A controller that has not answered a registration by then is left.
    absl::Duration register_timeout = absl::Seconds(10);
    // Pauses between registrations that are refused for another process, together: longer than a
    // controller takes to lose a silent worker.
    absl::Duration refused_max = absl::Seconds(20);
    // The same for those that are refused for the worker's version; nothing: it comes again for
    // ever, since the controller may be upgraded.
    std::optional<absl::Duration> version_refused_max;
    uint64_t seed = 0;  // of what is by chance
  };

  // All must outlive the agent.
  struct Ports {
    EventLoop& loop;
    SessionHost& host;
    WorkerMetrics& metrics;
  };

  // InvalidArgument: no address, or what the caller refuses. Once started, the agent must have left
  // before it is destroyed, or never hear again of its session.
  static absl::StatusOr<std::unique_ptr<SessionAgent>> Create(
      const Ports& ports, Options options, std::unique_ptr<SessionCaller> caller);
  ~SessionAgent();

  void Start();
  // Sends the next heartbeat at once, since what it says has changed. Nothing happens between
  // sessions: a registration says it.
  void HurryHeartbeat();
  // Says goodbye, if there is a session, and calls `left` when its call is over. Final.
  void Leave(absl::AnyInvocable<void()> left);
  // After Leave, for a controller that does not answer: ends the call at once.
  void BreakOff();

  bool registered() const { return registered_; }

 private:
  SessionAgent(const Ports& ports, Options options, std::unique_ptr<SessionCaller> caller);

  void Connect();
  // Of the session with this number; what an older one says is ignored.
  void OnResponse(uint64_t session, const v1::WorkerSessionResponse& response);
  void OnEnd(uint64_t session, const absl::Status& status);
  // True: the agent is not to try again.
  bool GivesUp(const absl::Status& status, absl::Duration pause);
  void OnRegistered(const v1::WorkerSessionResponse::Registered& registered);
  // And the next one after that time.
  void SendHeartbeat(absl::Duration next);
  absl::Duration PartOfInterval();
  void SetRegistered(bool registered);

  EventLoop& loop_;
  SessionHost& host_;
  WorkerMetrics& metrics_;
  const Options options_;
  const std::unique_ptr<SessionCaller> caller_;

  Backoff backoff_;
  std::mt19937_64 random_;
  ControllerRoute route_;
  // Says only the oldest protocol: a controller that does not know that there may be several has
  // refused the newest.
  bool speaks_oldest_ = false;
  std::string controller_;  // of the session, or of the one before
  uint64_t session_number_ = 0;
  std::shared_ptr<SessionCall> session_;  // null between sessions
  bool registered_ = false;
  uint64_t epoch_ = 0;  // of the session's controller
  absl::Duration refused_for_;
  bool leaving_ = false;
  absl::AnyInvocable<void()> left_;
  absl::Duration heartbeat_interval_;
  TimerId timer_;  // the next heartbeat, the end of a registration, or the next try
};

}  // namespace crossmesh
