#pragma once

#include "worker/agent/session_agent.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

class TaskTable;
class Transport;
class WorkerDevices;

// What a worker tells its controller of itself: its name, what it has, how its tasks go.
// Thread-compatible; destroyed when the control loop has stopped.
class ControllerSession final : private SessionHost {
 public:
  struct Options {
    std::string worker;
    uint64_t incarnation = 0;              // of this process, greater than of those before
    std::vector<std::string> controllers;  // addresses, at least one
    bool insecure = false;
    std::vector<std::string> data_interfaces;
    std::optional<absl::Duration> version_refused_max;    // as WorkerOptions says
    std::function<void()> on_drained;                     // as WorkerOptions says
    std::function<void(const absl::Status&)> on_refused;  // as WorkerOptions says
  };
  // All outlive it.
  struct Ports {
    EventLoop& control;
    WorkerDevices& devices;
    TaskTable& tasks;
    const Clock& clock;
    WorkerMetrics& metrics;
  };

  ControllerSession(Options options, const Ports& ports)
      : options_(std::move(options)), ports_(ports) {}

  // What SessionAgent::Create says. `execution_address` and `transport`: where it is reached.
  absl::Status Open(const std::string& execution_address, const Transport& transport);
  // Begins on the control loop, which may start later.
  void Start();
  // Says from now on that the worker drains of its own, which no controller takes back. Any thread.
  void TellLeaving();
  // On the control loop: as SessionAgent says.
  void HurryHeartbeat() { agent_->HurryHeartbeat(); }
  // Says goodbye, and waits until that is over.
  void Leave();

 private:
  v1::WorkerSessionRequest::Register Registration(const std::string& execution_address,
                                                  const Transport& transport) const;
  void DescribeTraffic(v1::WorkerSessionRequest::Heartbeat& heartbeat) const;

  // SessionHost; on the control loop.
  void Refresh(v1::WorkerSessionRequest::Register& registration) override;
  void MakeHeartbeat(uint64_t epoch, absl::AnyInvocable<void(Heartbeat)> done) override;
  void OnDrain() override;
  void OnUndrain() override;
  void OnOperationsEnded(uint64_t epoch, const std::vector<std::string>& operations) override;
  void OnRefused(const absl::Status& why) override;

  const Options options_;
  const Ports ports_;
  std::unique_ptr<SessionAgent> agent_;
  // On the control loop.
  bool draining_ = false;
  bool leaving_ = false;
};

}  // namespace crossmesh
