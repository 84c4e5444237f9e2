#include "controller/service/worker_service.h"

#include "common/base/status_macros.h"
#include "common/mesh/mesh.h"
#include "common/rpc/server_streams.h"
#include "common/wire/communicator_codec.h"
#include "common/wire/session_protocol.h"
#include "common/wire/time_codec.h"
#include "controller/membership/worker_protocol.h"
#include "controller/membership/worker_registry.h"
#include "controller/service/job_registry.h"
#include "controller/service/paging.h"
#include "controller/service/session_table.h"
#include "controller/service/unary.h"
#include "controller/service/worker_session.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

class GrpcWorkerSession final
    : public ServerBidiStream<v1::WorkerSessionRequest, v1::WorkerSessionResponse>,
      public WorkerSession {
 public:
  using WorkerSession::WorkerSession;

  void Tell(v1::WorkerSessionResponse response) override { Send(std::move(response)); }
  void Finish(absl::Status status) override { End(std::move(status)); }

 private:
  void OnMessage(v1::WorkerSessionRequest request) override { OnRequest(request); }
  void OnMessagesEnd() override { OnRequestsEnd(); }
  void OnEnd() override { OnOver(); }
};

v1::WorkerState StateOf(WorkerState state) {
  // In the order of WorkerState.
  constexpr v1::WorkerState kValues[] = {v1::WORKER_STATE_READY, v1::WORKER_STATE_SUSPECT,
                                         v1::WORKER_STATE_DRAINING, v1::WORKER_STATE_LOST};
  static_assert(std::size(kValues) == static_cast<size_t>(WorkerState::kLost) + 1);
  return kValues[static_cast<size_t>(state)];
}

v1::Worker MessageOf(const WorkerRecord& record) {
  v1::Worker out;
  out.set_name(record.name);
  out.set_state(StateOf(record.state));
  out.set_devices(DevicesToString(record.devices));
  out.set_execution_address(record.execution_address);
  out.set_transport(record.transport);
  out.set_memory_bytes(record.memory_bytes);
  out.set_incarnation(record.incarnation);
  *out.mutable_last_heartbeat_time() = ToProto(record.last_heartbeat);
  out.set_version(record.version);
  for (const std::string& interface : record.data_interfaces) out.add_data_interfaces(interface);
  for (const GpuRecord& record_gpu : record.gpus) {
    v1::Gpu& gpu = *out.add_gpus();
    gpu.set_device(ToString(record_gpu.device));
    *gpu.mutable_process() = ToProto(record_gpu.process);
    if (record_gpu.hardware.has_value()) *gpu.mutable_hardware() = *record_gpu.hardware;
  }
  for (const v1::InterfaceTraffic& traffic : record.traffic) *out.add_traffic() = traffic;
  for (const std::string& storage : record.dirty_storages) out.add_dirty_storages(storage);
  for (const FailedPeer& failed : record.failed_links) {
    v1::FailedLink& link = *out.add_failed_links();
    link.set_peer(failed.peer);
    link.set_reason(failed.reason);
    *link.mutable_time() = ToProto(failed.time);
  }
  out.set_m2n(record.m2n);
  out.set_problem(record.problem);
  if (record.described_host.has_value()) *out.mutable_described_host() = *record.described_host;
  return out;
}

}  // namespace

grpc::ServerUnaryReactor* WorkerService::ListWorkers(grpc::CallbackServerContext* context,
                                                     const v1::ListWorkersRequest* request,
                                                     v1::ListWorkersResponse* response) {
  return Serve(context, *request, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const int32_t limit, PageSize(request->page_size()));
    RETURN_IF_ERROR(CheckPageToken(request->page_token(), IsObjectName(request->page_token())));
    for (const WorkerRecord& record : registry_.List()) {
      if (record.name <= request->page_token()) continue;
      if (response->workers_size() == limit) {
        response->set_next_page_token(response->workers(limit - 1).name());
        break;
      }
      v1::Worker& worker = *response->add_workers() = MessageOf(record);
      worker.set_running_tasks(CountRunning(record.running_operations));
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* WorkerService::DrainWorker(grpc::CallbackServerContext* context,
                                                     const v1::DrainWorkerRequest* request,
                                                     v1::DrainWorkerResponse* /*response*/) {
  return Serve(context, *request, [&]() -> absl::Status {
    RETURN_IF_ERROR(registry_.Drain(request->name()));
    sessions_.TellToDrain(request->name());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* WorkerService::UndrainWorker(grpc::CallbackServerContext* context,
                                                       const v1::UndrainWorkerRequest* request,
                                                       v1::UndrainWorkerResponse* /*response*/) {
  return Serve(context, *request, [&]() -> absl::Status {
    const absl::StatusOr<WorkerRecord> worker = registry_.Get(request->name());
    if (worker.ok()) {
      RETURN_IF_ERROR(CheckSpeaks(*worker, kCoursesProtocol, "drains that are taken back"));
    }
    RETURN_IF_ERROR(registry_.Undrain(request->name()));
    if (sessions_.TellToUndrain(request->name())) return absl::OkStatus();
    // One that comes back says that it drains, which it has to be told again then.
    return absl::UnavailableError(
        absl::StrCat("worker ", request->name(), ": expected a session, found it broken"));
  });
}

grpc::ServerUnaryReactor* WorkerService::EvictWorker(grpc::CallbackServerContext* context,
                                                     const v1::EvictWorkerRequest* request,
                                                     v1::EvictWorkerResponse* /*response*/) {
  return Serve(context, *request, [&]() -> absl::Status {
    RETURN_IF_ERROR(registry_.Evict(request->name()));
    sessions_.Evict(request->name());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* WorkerService::ForgetWorker(grpc::CallbackServerContext* context,
                                                      const v1::ForgetWorkerRequest* request,
                                                      v1::ForgetWorkerResponse* /*response*/) {
  return Serve(context, *request, [&] { return registry_.Forget(request->name()); });
}

int32_t WorkerService::CountRunning(const std::vector<std::string>& operations) const {
  return static_cast<int32_t>(std::ranges::count_if(operations, [this](const std::string& id) {
    const auto operation = operations_.Get(id);
    return operation.ok() && !(*operation)->has_end_time();
  }));
}

grpc::ServerBidiReactor<v1::WorkerSessionRequest, v1::WorkerSessionResponse>*
WorkerService::WorkerSession(grpc::CallbackServerContext* /*context*/) {
  return GrpcWorkerSession::Serve(std::make_shared<GrpcWorkerSession>(sessions_));
}

}  // namespace crossmesh
