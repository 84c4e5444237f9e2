#include "controller/service/worker_messages.h"

#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/mesh/mesh.h"
#include "common/rpc/address.h"
#include "common/wire/communicator_codec.h"
#include "common/wire/object_name.h"
#include "common/wire/session_protocol.h"
#include "controller/service/session_table.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
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

std::vector<std::string> DirtyOf(const v1::WorkerSessionRequest::Heartbeat& heartbeat) {
  constexpr int kStoragesMax = 64;
  constexpr size_t kBytesMax = 256;
  std::vector<std::string> storages;
  for (const std::string& storage : heartbeat.dirty_storages()) {
    if (storages.size() == kStoragesMax) break;
    storages.push_back(storage.substr(0, kBytesMax));
  }
  return storages;
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

}  // namespace

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
      .leaving = message.leaving(),
      .m2n = message.m2n()};
  if (message.has_described_host()) record.described_host = message.described_host();
  return record;
}

absl::StatusOr<WorkerRegistry::Heartbeat> HeartbeatOf(
    absl::string_view worker, const v1::WorkerSessionRequest::Heartbeat& message) {
  absl::StatusOr<std::vector<RankName>> processes = ProcessesOf(message);
  if (!processes.ok()) {
    return Refuse(worker, "heartbeat.gpu_processes", processes.status().message());
  }
  return WorkerRegistry::Heartbeat{.memory_bytes = message.memory_bytes(),
                                   .running_tasks = message.tasks_size(),
                                   .gpu_processes = *std::move(processes),
                                   .draining = message.draining(),
                                   .leaving = message.leaving(),
                                   .m2n = message.m2n(),
                                   .running_operations = RunningOf(message),
                                   .traffic = TrafficOf(message),
                                   .dirty_storages = DirtyOf(message)};
}

}  // namespace crossmesh
