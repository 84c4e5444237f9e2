#include "controller/service/session_table.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/mesh/mesh.h"
#include "common/metrics/controller_metrics.h"
#include "common/rpc/address.h"
#include "common/wire/communicator_codec.h"
#include "common/wire/object_name.h"
#include "common/wire/session_protocol.h"
#include "common/wire/time_codec.h"
#include "controller/dispatch/running_operation.h"
#include "controller/dispatch/running_table.h"
#include "controller/membership/worker_registry.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status Refuse(absl::string_view worker, absl::string_view field, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("worker ", worker, ": ", field, ": ", why));
}

absl::Status CheckInterfaces(const v1::WorkerSessionRequest::Register& message) {
  const size_t most = SessionTable::kInterfacesMax;
  const size_t bytes_max = SessionTable::kInterfaceBytesMax;
  const auto count = static_cast<size_t>(message.data_interfaces_size());
  if (count > most) {
    return Refuse(message.worker(), "data_interfaces",
                  absl::StrCat("expected at most ", most, ", found ", count));
  }
  for (const std::string& interface : message.data_interfaces()) {
    if (!interface.empty() && interface.size() <= bytes_max) continue;
    return Refuse(message.worker(), "data_interfaces",
                  absl::StrCat("expected names of 1 to ", bytes_max, " bytes, found one of ",
                               interface.size()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<GpuRecord>> GpusOf(const v1::WorkerSessionRequest::Register& message) {
  const auto count = static_cast<size_t>(message.gpus_size());
  const size_t most = SessionTable::kGpusMax;
  if (count > most) {
    return absl::InvalidArgumentError(absl::StrCat("expected at most ", most, ", found ", count));
  }
  std::vector<GpuRecord> gpus;
  for (const v1::Gpu& gpu : message.gpus()) {
    GpuRecord& record = gpus.emplace_back();
    ASSIGN_OR_RETURN(record.device, ParseDevice(gpu.device()));
    ASSIGN_OR_RETURN(record.process, FromProto(gpu.process()));
    if (gpu.has_hardware()) record.hardware = gpu.hardware();
  }
  return gpus;
}

absl::StatusOr<std::vector<RankName>> ProcessesOf(
    const v1::WorkerSessionRequest::Heartbeat& heartbeat) {
  std::vector<RankName> processes;
  for (const v1::CommunicatorKey::Rank& process : heartbeat.gpu_processes()) {
    ASSIGN_OR_RETURN(processes.emplace_back(), FromProto(process));
  }
  return processes;
}

// A worker that tells of more has made them up.
std::vector<v1::InterfaceTraffic> TrafficOf(const v1::WorkerSessionRequest::Heartbeat& heartbeat) {
  constexpr int kInterfacesMax = 64;
  const auto end = heartbeat.traffic().begin() + std::min(heartbeat.traffic_size(), kInterfacesMax);
  return {heartbeat.traffic().begin(), end};
}

std::vector<std::string> RunningOf(const v1::WorkerSessionRequest::Heartbeat& heartbeat) {
  std::vector<std::string> operations;
  for (const v1::WorkerSessionRequest::TaskProgress& task : heartbeat.tasks()) {
    operations.push_back(task.operation_id());
  }
  return operations;
}

std::string ToText(const SessionProtocols& protocols) {
  if (protocols.oldest == protocols.newest) return absl::StrCat("protocol ", protocols.newest);
  return absl::StrCat("protocols ", protocols.oldest, " to ", protocols.newest);
}

// What the session speaks.
absl::StatusOr<int32_t> ProtocolOf(const v1::WorkerSessionRequest::Register& message) {
  const int32_t newest = message.protocol();
  const int32_t oldest = message.oldest_protocol() == 0 ? newest : message.oldest_protocol();
  const SessionProtocols theirs{.oldest = oldest, .newest = newest};
  if (const std::optional<int32_t> common = CommonProtocol(kSessionProtocols, theirs)) {
    return *common;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("worker ", message.worker(), ": expected ", ToText(kSessionProtocols),
                   ", as a controller of version ", Version(), " speaks, found ", ToText(theirs),
                   " of version ", absl::CHexEscape(message.version()),
                   "; versions may differ by one minor: upgrade the older one"));
}

absl::StatusOr<WorkerRecord> RecordOf(const v1::WorkerSessionRequest::Register& message) {
  RETURN_IF_ERROR(CheckObjectName("worker", message.worker()));
  absl::StatusOr<std::vector<DeviceId>> devices = ParseDevices(message.devices());
  if (!devices.ok()) return Refuse(message.worker(), "devices", devices.status().message());
  absl::StatusOr<std::vector<GpuRecord>> gpus = GpusOf(message);
  if (!gpus.ok()) return Refuse(message.worker(), "gpus", gpus.status().message());
  const absl::StatusOr<RpcAddress> address = ParseRpcAddress(message.execution_address());
  if (!address.ok()) {
    return Refuse(message.worker(), "execution_address", address.status().message());
  }
  if (message.data_address().size() > SessionTable::kDataAddressBytesMax) {
    return Refuse(
        message.worker(), "data_address",
        absl::StrCat("expected at most ", static_cast<size_t>(SessionTable::kDataAddressBytesMax),
                     " bytes, found ", message.data_address().size()));
  }
  RETURN_IF_ERROR(CheckInterfaces(message));
  if (message.described_host().ByteSizeLong() > SessionTable::kDescribedHostBytesMax) {
    return Refuse(
        message.worker(), "described_host",
        absl::StrCat("expected at most ", static_cast<size_t>(SessionTable::kDescribedHostBytesMax),
                     " bytes, found ", message.described_host().ByteSizeLong()));
  }
  WorkerRecord record{
      .name = message.worker(),
      .incarnation = message.incarnation(),
      .devices = *std::move(devices),
      .gpus = *std::move(gpus),
      .execution_address = message.execution_address(),
      .transport = message.transport(),
      .data_address = message.data_address(),
      .data_interfaces = {message.data_interfaces().begin(), message.data_interfaces().end()},
      .version = message.version(),
      .draining = message.draining(),
      .m2n = message.m2n()};
  if (message.has_described_host()) record.described_host = message.described_host();
  return record;
}

RegistrationResult ResultOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return RegistrationResult::kAccepted;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return RegistrationResult::kRejectedDuplicate;
    case absl::StatusCode::kFailedPrecondition:
      return RegistrationResult::kRejectedVersion;
    default:
      return RegistrationResult::kRejectedIdentity;
  }
}

}  // namespace

// One stream of one worker. gRPC's calls come one after the other, so what they alone use has no
// lock.
class SessionTable::Session final : public Stream,
                                    public std::enable_shared_from_this<SessionTable::Session> {
 public:
  explicit Session(SessionTable& table) : table_(table) {}

 private:
  const Options& options() const { return table_.options_; }

  void OnMessage(v1::WorkerSessionRequest request) override {
    switch (request.message_case()) {
      case v1::WorkerSessionRequest::kRegister:
        OnRegister(request.register_());
        return;
      case v1::WorkerSessionRequest::kHeartbeat:
        OnHeartbeat(request.heartbeat());
        return;
      case v1::WorkerSessionRequest::kLeave:
        left_ = true;
        End(absl::OkStatus());
        return;
      case v1::WorkerSessionRequest::MESSAGE_NOT_SET:
        return;  // of a newer worker
    }
  }

  void OnRegister(const v1::WorkerSessionRequest::Register& message) {
    absl::Status status = session_.has_value()
                              ? absl::FailedPreconditionError(absl::StrCat(
                                    "worker ", worker_, ": registered twice on one stream"))
                              : Register(message);
    options().metrics.WorkerRegistration(ResultOf(status));
    if (!status.ok()) End(std::move(status));
  }

  absl::Status Register(const v1::WorkerSessionRequest::Register& message) {
    ASSIGN_OR_RETURN(WorkerRecord record, RecordOf(message));
    ASSIGN_OR_RETURN(const int32_t protocol, ProtocolOf(message));
    const std::string& devices = message.devices();
    // The registry first: it may refuse, and then the session before goes on.
    ASSIGN_OR_RETURN(const uint64_t session, options().registry.Register(std::move(record)));
    worker_ = message.worker();
    session_ = session;
    if (!table_.Enter(worker_, shared_from_this())) {
      return absl::UnavailableError("the controller is stopping");
    }
    LogInfo("worker_registered", {{"worker_id", worker_}, {"devices", devices}});
    v1::WorkerSessionResponse response;
    response.mutable_registered()->set_epoch(options().epoch);
    response.mutable_registered()->set_protocol(protocol);
    *response.mutable_registered()->mutable_heartbeat_interval() =
        ToProto(WorkerRegistry::kHeartbeatInterval);
    Send(std::move(response));
    if (!message.draining()) RepeatDrain();
    return absl::OkStatus();
  }

  // The stream before may have broken before the worker heard it.
  void RepeatDrain() {
    const absl::StatusOr<WorkerRecord> record = options().registry.Get(worker_);
    if (!record.ok() || !record->draining) return;
    v1::WorkerSessionResponse response;
    response.mutable_drain();
    Send(std::move(response));
  }

  // A worker that was away gives up what has ended meanwhile.
  void TellEnded(const v1::WorkerSessionRequest::Heartbeat& heartbeat) {
    if (heartbeat.held_operations().empty()) return;
    options().operations.FindEnded(
        {heartbeat.held_operations().begin(), heartbeat.held_operations().end()},
        [weak = weak_from_this()](const std::vector<std::string>& ended) {
          const std::shared_ptr<Session> self = weak.lock();
          if (self == nullptr) return;
          v1::WorkerSessionResponse response;
          response.mutable_operations_ended()->mutable_operations()->Assign(ended.begin(),
                                                                            ended.end());
          self->Send(std::move(response));
        });
  }

  void OnHeartbeat(const v1::WorkerSessionRequest::Heartbeat& heartbeat) {
    if (!session_.has_value()) {
      End(absl::FailedPreconditionError("expected a registration before heartbeats"));
      return;
    }
    absl::StatusOr<std::vector<RankName>> processes = ProcessesOf(heartbeat);
    if (!processes.ok()) {
      End(Refuse(worker_, "heartbeat.gpu_processes", processes.status().message()));
      return;
    }
    const WorkerRegistry::Heartbeat beat{.memory_bytes = heartbeat.memory_bytes(),
                                         .running_tasks = heartbeat.tasks_size(),
                                         .gpu_processes = *std::move(processes),
                                         .draining = heartbeat.draining(),
                                         .m2n = heartbeat.m2n(),
                                         .running_operations = RunningOf(heartbeat),
                                         .traffic = TrafficOf(heartbeat)};
    if (!options().registry.Beat(worker_, *session_, beat)) {
      End(absl::AbortedError(absl::StrCat("worker ", worker_,
                                          ": this session is over: the worker was lost, or has "
                                          "another session")));
      return;
    }
    const absl::Duration now = options().clock.Monotonic();
    if (last_beat_.has_value()) options().metrics.Heartbeat(now - *last_beat_);
    last_beat_ = now;
    TellEnded(heartbeat);
    for (const v1::WorkerSessionRequest::TaskProgress& task : heartbeat.tasks()) {
      options().operations.With(task.operation_id(),
                                [worker = worker_, task](RunningOperation& operation) {
                                  operation.Progress(worker, task.attempt(), task.moved_bytes());
                                });
    }
  }

  // A worker that sends nothing more beats no more.
  void OnMessagesEnd() override { End(absl::OkStatus()); }

  void OnEnd() override {
    if (!session_.has_value()) return;
    table_.Leave(worker_, *this);
    options().registry.StreamEnded(worker_, *session_);
    const auto ended = [&registry = options().registry, worker = worker_, session = *session_,
                        left = left_] { registry.SessionEnded(worker, session, left); };
    if (left_) {
      ended();
    } else {
      // Of a worker that has come back by then the registry ignores this: the session is an old
      // one.
      options().queue.PostAfter(kReturnTime, ended);
    }
  }

  SessionTable& table_;
  std::string worker_;
  std::optional<uint64_t> session_;
  std::optional<absl::Duration> last_beat_;
  bool left_ = false;
};

SessionTable::Stream::Reactor* SessionTable::Open() {
  return Stream::Serve(std::make_shared<Session>(*this));
}

bool SessionTable::Enter(const std::string& worker, std::shared_ptr<Session> session) {
  std::shared_ptr<Session> superseded;
  int64_t sessions = 0;
  {
    const MutexLock lock(mutex_);
    if (!closed_.ok()) return false;
    superseded = std::exchange(sessions_[worker], std::move(session));
    sessions = static_cast<int64_t>(sessions_.size());
  }
  CountSessions(sessions);
  if (superseded != nullptr) {
    superseded->End(
        absl::AbortedError(absl::StrCat("worker ", worker, ": superseded by another session")));
  }
  return true;
}

void SessionTable::Leave(const std::string& worker, const Session& session) {
  std::shared_ptr<Session> left;  // goes away without the lock
  int64_t sessions = 0;
  {
    const MutexLock lock(mutex_);
    const auto found = sessions_.find(worker);
    if (found == sessions_.end() || found->second.get() != &session) return;
    left = std::move(found->second);
    sessions_.erase(found);
    sessions = static_cast<int64_t>(sessions_.size());
  }
  CountSessions(sessions);
}

void SessionTable::CountSessions(int64_t sessions) { options_.metrics.SetWorkerSessions(sessions); }

std::shared_ptr<SessionTable::Session> SessionTable::Find(const std::string& worker) {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(worker);
  return found == sessions_.end() ? nullptr : found->second;
}

void SessionTable::TellToDrain(const std::string& worker) {
  const std::shared_ptr<Session> session = Find(worker);
  if (session == nullptr) return;
  v1::WorkerSessionResponse response;
  response.mutable_drain();
  session->Send(std::move(response));
}

void SessionTable::Evict(const std::string& worker) {
  const std::shared_ptr<Session> session = Find(worker);
  if (session == nullptr) return;
  session->End(absl::AbortedError(absl::StrCat("worker ", worker, ": it was evicted")));
}

void SessionTable::Close(const absl::Status& why) {
  absl::flat_hash_map<std::string, std::shared_ptr<Session>> sessions;
  {
    const MutexLock lock(mutex_);
    closed_ = why;
    sessions = sessions_;
  }
  for (const auto& [worker, session] : sessions) session->End(why);
}

}  // namespace crossmesh
