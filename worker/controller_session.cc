#include "worker/controller_session.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/event_loop/event_loop.h"
#include "common/host_devices/interface_traffic.h"
#include "common/mesh/mesh.h"
#include "common/wire/session_protocol.h"
#include "worker/agent/grpc_session_caller.h"
#include "worker/latch.h"
#include "worker/tasks/task_table.h"
#include "worker/transport/transport.h"
#include "worker/worker_devices.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <absl/time/time.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kLeaveGrace = absl::Seconds(2);

}  // namespace

absl::Status ControllerSession::Open(const std::string& execution_address,
                                     const Transport& transport) {
  v1::WorkerSessionRequest::Register registration = Registration(execution_address, transport);
  const uint64_t seed = registration.incarnation();
  ASSIGN_OR_RETURN(
      agent_,
      SessionAgent::Create({.loop = ports_.control, .host = *this, .metrics = ports_.metrics},
                           {.controllers = options_.controllers,
                            .registration = std::move(registration),
                            .version_refused_max = options_.version_refused_max,
                            .seed = seed},
                           std::make_unique<GrpcSessionCaller>(ports_.control, options_.insecure)));
  return absl::OkStatus();
}

void ControllerSession::Start() {
  ports_.control.Post([this] { agent_->Start(); });
}

void ControllerSession::TellLeaving() {
  ports_.control.Post([this] {
    draining_ = true;
    leaving_ = true;
    agent_->HurryHeartbeat();
  });
}

void ControllerSession::Leave() {
  const auto left = std::make_shared<Latch>();
  ports_.control.Post([this, left] { agent_->Leave([left] { left->Set(); }); });
  // A controller that does not answer must not hold up the end: its call is broken off.
  if (left->WaitFor(ports_.clock, kLeaveGrace)) return;
  ports_.control.Post([this] { agent_->BreakOff(); });
  left->WaitFor(ports_.clock, absl::InfiniteDuration());
}

v1::WorkerSessionRequest::Register ControllerSession::Registration(
    const std::string& execution_address, const Transport& transport) const {
  v1::WorkerSessionRequest::Register registration;
  registration.set_worker(options_.worker);
  registration.set_incarnation(options_.incarnation);
  registration.set_devices(DevicesToString(ports_.devices.devices()));
  registration.set_execution_address(execution_address);
  registration.set_transport(std::string(transport.name()));
  registration.set_data_address(transport.address());
  registration.set_version(std::string(Version()));
  registration.set_protocol(kSessionProtocols.newest);
  registration.set_oldest_protocol(kSessionProtocols.oldest);
  for (const std::string& interface : options_.data_interfaces) {
    registration.add_data_interfaces(interface);
  }
  return registration;
}

// Processes of GPUs come and go, so each registration names those of its time.
void ControllerSession::Refresh(v1::WorkerSessionRequest::Register& registration) {
  ports_.devices.Describe(registration);
  registration.set_draining(draining_);
  registration.set_leaving(leaving_);
}

void ControllerSession::MakeHeartbeat(uint64_t epoch, absl::AnyInvocable<void(Heartbeat)> done) {
  ports_.tasks.CollectProgress(
      [this, epoch, done = std::move(done)](const std::vector<TaskTable::Progress>& tasks) mutable {
        Heartbeat heartbeat;
        for (const TaskTable::Progress& task : tasks) {
          v1::WorkerSessionRequest::TaskProgress& progress = *heartbeat.add_tasks();
          progress.set_operation_id(task.operation_id);
          progress.set_attempt(task.attempt);
          progress.set_moved_bytes(task.moved_bytes);
        }
        for (std::string& operation : ports_.tasks.HeldOperations(epoch)) {
          heartbeat.add_held_operations(std::move(operation));
        }
        heartbeat.set_draining(draining_);
        heartbeat.set_leaving(leaving_);
        ports_.devices.Describe(heartbeat);
        DescribeTraffic(heartbeat);
        done(std::move(heartbeat));
      });
}

void ControllerSession::DescribeTraffic(Heartbeat& heartbeat) const {
  for (const std::string& interface : options_.data_interfaces) {
    const std::optional<InterfaceTraffic> found = ReadInterfaceTraffic("/", interface);
    if (!found.has_value()) continue;
    v1::InterfaceTraffic& traffic = *heartbeat.add_traffic();
    traffic.set_interface(interface);
    traffic.set_sent_bytes(found->sent_bytes);
    traffic.set_received_bytes(found->received_bytes);
  }
}

void ControllerSession::OnDrain() {
  // Once: a session that is renewed asks again.
  if (std::exchange(draining_, true)) return;
  LogInfo("worker_drains", {{"worker_id", options_.worker}, {"asked_by", "controller"}});
  ports_.tasks.Drain([this] {
    if (options_.on_drained) options_.on_drained();
  });
}

void ControllerSession::OnUndrain() {
  if (leaving_ || !std::exchange(draining_, false)) return;
  LogInfo("worker_drains_no_more", {{"worker_id", options_.worker}});
  ports_.tasks.Undrain();
  agent_->HurryHeartbeat();
}

void ControllerSession::OnOperationsEnded(uint64_t epoch,
                                          const std::vector<std::string>& operations) {
  ports_.tasks.GiveUp(operations, epoch);
}

void ControllerSession::OnRefused(const absl::Status& why) {
  if (options_.on_refused) options_.on_refused(why);
}

}  // namespace crossmesh
