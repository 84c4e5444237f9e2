#include "controller/dispatch/network_measurement.h"

#include "common/wire/time_codec.h"

#include <utility>

#include <absl/container/btree_map.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::StatusOr<ProbePlaces> ProbePlacesOf(std::span<const WorkerRecord> workers) {
  absl::btree_map<ProbePort, ProbePlaces::Prober> probers;
  for (const WorkerRecord& worker : workers) {
    if (worker.state == WorkerState::kLost || worker.state == WorkerState::kDraining) continue;
    if (worker.data_interfaces.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "worker ", worker.name, ": expected network interfaces to probe, it names none"));
    }
    for (const DeviceId& device : worker.devices) {
      for (const std::string& interface : worker.data_interfaces) {
        probers.try_emplace({device.host, interface},
                            ProbePlaces::Prober{worker.name, worker.execution_address});
      }
    }
  }
  ProbePlaces places;
  for (auto& [port, prober] : probers) {
    places.ports.push_back(port);
    places.probers.push_back(std::move(prober));
  }
  // They ascend by host.
  if (places.ports.empty() || places.ports.front().host == places.ports.back().host) {
    return absl::FailedPreconditionError(absl::StrCat(
        "expected workers on two hosts or more, found ",
        places.ports.empty() ? "none" : "host " + places.ports.front().host + " only"));
  }
  return places;
}

std::shared_ptr<NetworkMeasurement> NetworkMeasurement::Create(Options options) {
  return std::shared_ptr<NetworkMeasurement>(new NetworkMeasurement(std::move(options)));
}

NetworkMeasurement::NetworkMeasurement(Options options)
    : options_(std::move(options)), rounds_(ScheduleProbes(options_.places.ports)) {
  for (const std::vector<ProbeLink>& round : rounds_) {
    progress_.links += static_cast<int32_t>(round.size());
  }
}

void NetworkMeasurement::Cancel() {
  const MutexLock lock(mutex_);
  status_.Update(absl::CancelledError("the measurement is no longer wanted"));
}

void NetworkMeasurement::StartRound() {
  size_t round = 0;
  Progress progress;
  absl::StatusOr<Result> result;
  {
    const MutexLock lock(mutex_);
    round = round_;
    progress = progress_;
    if (!status_.ok() || round == rounds_.size()) {
      result = status_.ok() ? absl::StatusOr<Result>(std::move(result_)) : status_;
      round = rounds_.size();
    } else {
      links_open_ = rounds_[round].size();
      ++round_;
    }
  }
  options_.on_progress(progress);
  if (round == rounds_.size()) return options_.on_end(std::move(result));
  for (const ProbeLink& link : rounds_[round]) Open(link);
}

void NetworkMeasurement::Open(const ProbeLink& link) {
  v1::OpenProbeRequest request;
  request.set_interface(options_.places.ports[link.to].nic);
  request.set_token(options_.new_token());
  *request.mutable_time() = ToProto(options_.link_time);
  options_.gateway.Open(options_.places.probers[link.to].address, request,
                        [self = shared_from_this(), link, token = request.token()](
                            const absl::StatusOr<v1::OpenProbeResponse>& opened) {
                          if (opened.ok()) return self->Run(link, *opened, token);
                          self->OnLinkOver(self->Explain(link, link.to, opened.status()));
                        });
}

void NetworkMeasurement::Run(const ProbeLink& link, const v1::OpenProbeResponse& to,
                             const std::string& token) {
  v1::RunProbeRequest request;
  request.set_interface(options_.places.ports[link.from].nic);
  request.set_ip(to.ip());
  request.set_port(to.port());
  request.set_token(token);
  *request.mutable_time() = ToProto(options_.link_time);
  request.set_bytes(options_.link_bytes);
  options_.gateway.Run(
      options_.places.probers[link.from].address, std::move(request),
      [self = shared_from_this(), link](const absl::StatusOr<v1::RunProbeResponse>& result) {
        self->OnResult(link, result);
      });
}

void NetworkMeasurement::OnResult(const ProbeLink& link,
                                  const absl::StatusOr<v1::RunProbeResponse>& result) {
  // That no way leads from one NIC to the other is a finding, and no failure of the measurement.
  if (absl::IsFailedPrecondition(result.status())) {
    {
      const MutexLock lock(mutex_);
      result_.failures.push_back(Explain(link, link.from, result.status()));
    }
    return OnLinkOver(absl::OkStatus());
  }
  if (!result.ok()) return OnLinkOver(Explain(link, link.from, result.status()));
  const LinkFigures figures = {.link = link,
                               .received_bytes = result->received_bytes(),
                               .bytes_per_second = result->bytes_per_second(),
                               .round_trip_ns = result->round_trip_ns()};
  const absl::Status possible = CheckFigures(options_.places.ports, figures);
  if (possible.ok()) {
    const MutexLock lock(mutex_);
    result_.links.push_back(figures);
    progress_.received_bytes += figures.received_bytes;
  }
  OnLinkOver(possible);
}

void NetworkMeasurement::OnLinkOver(const absl::Status& status) {
  {
    const MutexLock lock(mutex_);
    status_.Update(status);
    ++progress_.measured_links;
    if (--links_open_ > 0) return;
  }
  // Without the lock: answers may come from inside.
  StartRound();
}

// Unavailable for any error of a worker: another measurement may succeed.
absl::Status NetworkMeasurement::Explain(const ProbeLink& link, int port,
                                         const absl::Status& status) const {
  return absl::UnavailableError(absl::StrCat("link ", ToString(options_.places.ports[link.from]),
                                             " to ", ToString(options_.places.ports[link.to]),
                                             ": worker ", options_.places.probers[port].worker,
                                             ": ", status.message()));
}

}  // namespace crossmesh
