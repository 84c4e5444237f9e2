#pragma once

#include "controller/service/worker_session.h"
#include "tests/simulation/simulated_network.h"
#include "worker/agent/session_agent.h"
#include "worker/agent/session_call.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

class SimulatedController;
class TaskTable;

// The controller's end of a session: side 1 of a simulated call.
class SimulatedWorkerSession final : public WorkerSession {
 public:
  using OnResponse = std::function<void(const v1::WorkerSessionResponse&)>;

  // `on_response` is called in the process of the worker.
  SimulatedWorkerSession(SessionTable& table, std::shared_ptr<SimulatedStream> stream,
                         OnResponse on_response)
      : WorkerSession(table), stream_(std::move(stream)), on_response_(std::move(on_response)) {}

  void Tell(v1::WorkerSessionResponse response) override;
  void Finish(absl::Status status) override;

  // Its controller's term ends, and the table with it: nothing is heard any more.
  void Drop(const absl::Status& why);

  void Hear(const v1::WorkerSessionRequest& request);
  // By its controller's clock.
  absl::Duration heard_at() const { return heard_at_; }
  bool is_open() const { return stream_->is_open(1); }
  const std::string& worker() const { return worker_; }
  uint64_t incarnation() const { return incarnation_; }

 private:
  const std::shared_ptr<SimulatedStream> stream_;
  const OnResponse on_response_;
  std::string worker_;
  uint64_t incarnation_ = 0;
  absl::Duration heard_at_;
  bool is_dropped_ = false;
};

// Opens sessions from a worker's process, over the simulated network.
class SimulatedSessionCaller final : public SessionCaller {
 public:
  SimulatedSessionCaller(SimulatedNode& node, SimulatedNetwork& network,
                         const std::vector<SimulatedController*>& controllers)
      : node_(node), network_(network), controllers_(controllers) {}

  absl::Status Check(const std::string& address) override;
  absl::StatusOr<std::shared_ptr<SessionCall>> Open(const std::string& address,
                                                    Listener listener) override;

 private:
  SimulatedNode& node_;
  SimulatedNetwork& network_;
  const std::vector<SimulatedController*>& controllers_;
};

// What a worker says of its tasks in a session, and does as it is told; as ControllerSession.
class SimulatedSessionHost final : public SessionHost {
 public:
  SimulatedSessionHost(TaskTable& tasks, std::function<void(const absl::Status&)> on_refused)
      : tasks_(tasks), on_refused_(std::move(on_refused)) {}

  void Refresh(v1::WorkerSessionRequest::Register& /*registration*/) override {}
  void MakeHeartbeat(uint64_t epoch, absl::AnyInvocable<void(Heartbeat)> done) override;
  void OnDrain() override {}
  void OnUndrain() override {}
  void OnOperationsEnded(uint64_t epoch, const std::vector<std::string>& operations) override;
  void OnRefused(const absl::Status& why) override { on_refused_(why); }

 private:
  TaskTable& tasks_;
  const std::function<void(const absl::Status&)> on_refused_;
};

}  // namespace crossmesh
