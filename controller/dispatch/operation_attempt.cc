#include "controller/dispatch/operation_attempt.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/wire/session_protocol.h"
#include "controller/membership/worker_protocol.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

// What of the plan came with kCoursesProtocol; empty: nothing.
absl::string_view LaterThings(const Plan& plan) {
  if (plan.has_courses()) return "redistributions by steps";
  if (plan.spec().m2n) return "NCCL M2N";
  return plan.spec().over_gpus.empty() ? "" : "GPUs beside host memory";
}

}  // namespace

absl::Status OperationAttempt::SetWorkers(std::vector<WorkerRecord> owners) {
  workers = std::move(owners);
  devices.clear();
  const absl::string_view later = LaterThings(planned->plan());
  for (const WorkerRecord& worker : workers) {
    std::vector<DeviceId>& owned = devices.emplace_back();
    for (const DeviceId& device : worker.devices) {
      if (planned->tensors().FindDevice(device).has_value()) owned.push_back(device);
    }
    if (!later.empty()) RETURN_IF_ERROR(CheckSpeaks(worker, kCoursesProtocol, later));
  }
  return absl::OkStatus();
}

// Workers that move bytes take part, and those whose storage changes hands at the commit.
std::vector<WorkerShare> OperationAttempt::MakeShares() const {
  const TensorTable& tensors = planned->tensors();
  std::vector<WorkerShare> shares;
  for (size_t i = 0; i < workers.size(); ++i) {
    const WorkerPart& part = (*parts)[i];
    WorkerShare share{.worker = workers[i].name};
    for (const DeviceRank device : part.spec().devices) {
      const int32_t replica = tensors.replica_of(device);
      if (replica >= 0) share.replica_of_device[device] = replica_numbers[replica];
    }
    if (part.moves_bytes() || !share.replica_of_device.empty()) shares.push_back(std::move(share));
  }
  return shares;
}

// One message for all workers: with thousands of them, a list of peers for each would not fit.
std::shared_ptr<const v1::ExecuteRequest::Start> OperationAttempt::MakeStart(
    const v1::ExecuteRequest::Start& common, const std::vector<WorkerShare>& shares) const {
  auto message = std::make_shared<v1::ExecuteRequest::Start>(common);
  message->set_attempt(number);
  for (const WorkerShare& share : shares) {
    const size_t index = IndexOf(share.worker);
    v1::ExecuteRequest::Peer& peer = *message->add_peers();
    peer.set_worker(share.worker);
    peer.set_data_address(workers[index].data_address);
    const std::vector<DeviceRank>& ranks = (*parts)[index].spec().devices;
    peer.mutable_devices()->Assign(ranks.begin(), ranks.end());
  }
  communicators->WriteTo(*message);
  return message;
}

size_t OperationAttempt::IndexOf(const std::string& worker) const {
  const auto found = std::ranges::lower_bound(workers, worker, {}, &WorkerRecord::name);
  CHECK(found != workers.end() && found->name == worker)
      << "worker " << worker << " takes no part in attempt " << number;
  return static_cast<size_t>(found - workers.begin());
}

std::vector<DeviceRank> OperationAttempt::DestinationsOf(size_t worker) const {
  std::vector<DeviceRank> destinations;
  for (const DeviceRank device : (*parts)[worker].spec().devices) {
    if (planned->tensors().replica_of(device) >= 0) destinations.push_back(device);
  }
  return destinations;
}

TaskConnection& OperationAttempt::Task(const std::string& worker) const {
  const auto found = tasks.find(worker);
  CHECK(found != tasks.end()) << "worker " << worker << " has no task in attempt " << number;
  return *found->second;
}

int64_t OperationAttempt::MovedBytes() const {
  int64_t moved = 0;
  for (const auto& [worker, task] : tasks) {
    const std::optional<v1::TaskReport>& report = task->report();
    const auto told = moved_bytes.find(worker);
    moved += std::max(report.has_value() ? report->received_bytes() + report->copied_bytes() : 0,
                      told == moved_bytes.end() ? 0 : told->second);
  }
  return moved;
}

void OperationAttempt::AddReports(v1::OperationReport& report) const {
  for (const auto& [worker, task] : tasks) {
    if (task->report().has_value()) *report.add_workers() = *task->report();
  }
}

Remainder OperationAttempt::RemainderOf(const std::set<int32_t>& replicas,
                                        const std::set<std::string>& without) const {
  Remainder remainder{.first = planned, .replicas = replicas};
  for (size_t i = 0; i < workers.size(); ++i) {
    if (!without.contains(workers[i].name)) continue;
    remainder.lost.insert(devices[i].begin(), devices[i].end());
  }
  return remainder;
}

void OperationAttempt::TellBroken(const TaskEnded& ended) {
  const std::optional<v1::TaskReport>& report = Task(ended.worker).report();
  if (!report.has_value()) return;  // refused: it has used nothing
  communicators->OnBroken(
      std::vector<DeviceRank>(report->broken_devices().begin(), report->broken_devices().end()),
      absl::UnavailableError(absl::StrCat("worker ", ended.worker, ": ", ended.status.message())));
}

void OperationAttempt::ReturnCommunicators() {
  std::vector<AttemptCommunicators::BusyTask> busy;
  // Those of a former controller are not known here.
  if (parts == nullptr) return communicators->Return(busy);
  for (const auto& [worker, task] : tasks) {
    if (!task->ended()) busy.push_back({worker, (*parts)[IndexOf(worker)].spec().devices});
  }
  communicators->Return(busy);
}

}  // namespace crossmesh
