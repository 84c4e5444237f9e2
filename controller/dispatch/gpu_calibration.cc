#include "controller/dispatch/gpu_calibration.h"

#include "common/base/error_place.h"
#include "common/communicators/gpu_share.h"
#include "controller/dispatch/communicator_gateway.h"
#include "controller/dispatch/communicator_leases.h"
#include "controller/dispatch/task_queue.h"

#include <algorithm>
#include <set>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kPurpose = "calibration";

GpuFigures FiguresOf(const CalibratedHost& host, size_t rank,
                     const v1::MeasureGpuResponse& measured) {
  return {.device = host.devices[rank],
          .is_share = IsGpuShare(host.key.ranks[rank].gpu),
          .model = measured.model(),
          .launch_ns = measured.launch_ns(),
          .group_ns = measured.group_ns(),
          .message_ns = measured.message_ns(),
          .copy_bytes_per_second = measured.copy_bytes_per_second(),
          .exchange_bytes_per_second = measured.exchange_bytes_per_second(),
          .exchange_message_bytes = measured.exchange_message_bytes()};
}

}  // namespace

absl::StatusOr<std::vector<CalibratedHost>> CalibratedHostsOf(std::span<const WorkerRecord> workers,
                                                              uint64_t epoch) {
  struct Member {
    const GpuRecord* gpu;
    const WorkerRecord* worker;
  };
  std::map<DeviceId, Member> members;
  for (const WorkerRecord& worker : workers) {
    if (worker.state == WorkerState::kLost || worker.draining) continue;
    for (const GpuRecord& gpu : worker.gpus) {
      if (gpu.has_process()) members[gpu.device] = {&gpu, &worker};
    }
  }
  if (members.empty()) {
    return absl::FailedPreconditionError(
        "calibration: expected a GPU that is up, found none at any worker");
  }
  std::map<std::string, CalibratedHost> hosts;
  std::set<std::string> gpus;
  for (const auto& [device, member] : members) {
    if (!gpus.insert(UuidOf(member.gpu->process.gpu)).second) continue;
    CalibratedHost& host = hosts[device.host];
    host.name = device.host;
    host.key.purpose = std::string(kPurpose);
    host.key.epoch = epoch;
    host.key.ranks.push_back(member.gpu->process);
    host.devices.push_back(device);
    host.workers.push_back(member.worker->execution_address);
  }
  std::vector<CalibratedHost> list;
  for (auto& [name, host] : hosts) list.push_back(std::move(host));
  return list;
}

std::shared_ptr<GpuCalibration> GpuCalibration::Create(Options options) {
  return absl::WrapUnique(new GpuCalibration(std::move(options)));
}

absl::Status GpuCalibration::Start() {
  const bool is_posted = options_.queue.Post([self = shared_from_this()] {
    // All first: one that fails at once must not be taken for the last.
    for (const CalibratedHost& host : self->options_.hosts) self->open_[host.name].host = host;
    for (const CalibratedHost& host : self->options_.hosts) self->Want(host);
  });
  return is_posted ? absl::OkStatus() : absl::UnavailableError("the controller is stopping");
}

void GpuCalibration::Want(const CalibratedHost& host) {
  options_.leases.Want(UserOf(host.name), {host.key},
                       [self = shared_from_this(), name = host.name](const absl::Status& status) {
                         self->OnLeased(name, status);
                       });
}

void GpuCalibration::OnLeased(const std::string& name, const absl::Status& status) {
  const auto found = open_.find(name);
  if (found == open_.end()) return;
  Open& open = found->second;
  if (!status.ok()) {
    open.failure = At(absl::StrCat("host ", name), status);
    return Close(name);
  }
  open.unanswered = open.host.devices.size();
  open.figures.resize(open.unanswered);
  const CalibratedHost host = open.host;
  for (size_t rank = 0; rank < host.devices.size(); ++rank) {
    const CommunicatorRank at = {.key = host.key, .rank = static_cast<int32_t>(rank)};
    options_.gateway.Measure(
        host.workers[rank], at, kTimeout,
        [self = shared_from_this(), name, rank](absl::StatusOr<v1::MeasureGpuResponse> measured) {
          self->options_.queue.Post([self, name, rank, measured = std::move(measured)] {
            self->OnMeasured(name, rank, measured);
          });
        });
  }
}

void GpuCalibration::OnMeasured(const std::string& name, size_t rank,
                                const absl::StatusOr<v1::MeasureGpuResponse>& measured) {
  const auto found = open_.find(name);
  if (found == open_.end()) return;
  Open& open = found->second;
  if (measured.ok()) {
    open.figures[rank] = FiguresOf(open.host, rank, *measured);
  } else if (open.failure.ok()) {
    open.failure = At(absl::StrCat("GPU ", ToString(open.host.devices[rank])), measured.status());
    // The others wait for it no longer.
    options_.leases.Broken(UserOf(name), open.host.key.ranks[rank], measured.status());
  }
  if (--open.unanswered == 0) Close(name);
}

void GpuCalibration::Close(const std::string& name) {
  options_.leases.Release(UserOf(name));
  const Open closed = std::move(open_.extract(name).mapped());
  if (closed.failure.ok()) {
    std::ranges::copy(closed.figures, std::back_inserter(result_.figures));
  } else {
    result_.failures.push_back(closed.failure);
  }
  if (!open_.empty()) return;
  if (result_.figures.empty()) return End(result_.failures.front());
  std::ranges::sort(result_.figures, {}, &GpuFigures::device);
  End(std::move(result_));
}

void GpuCalibration::Cancel() {
  options_.queue.Post([self = shared_from_this()] {
    if (self->options_.on_end == nullptr) return;
    const absl::Status cancelled = absl::CancelledError("the client is gone");
    for (const auto& [name, open] : std::exchange(self->open_, {})) {
      // Its GPUs may still use it.
      if (open.unanswered > 0) {
        self->options_.leases.Broken(self->UserOf(name), open.host.key.ranks.front(), cancelled);
      }
      self->options_.leases.Release(self->UserOf(name));
    }
    self->End(cancelled);
  });
}

void GpuCalibration::End(absl::StatusOr<Result> result) {
  auto on_end = std::exchange(options_.on_end, nullptr);
  if (on_end != nullptr) on_end(std::move(result));
}

}  // namespace crossmesh
