#pragma once

#include "common/base/mutex.h"
#include "controller/dispatch/probe_gateway.h"
#include "controller/membership/worker_registry.h"
#include "crossmesh/v1/probe_service.pb.h"
#include "planner/network/measured_topology.h"
#include "planner/network/probe_schedule.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// The NICs that workers can probe, each once, ascending, and which worker does it for each: the
// first by name of those that share it.
struct ProbePlaces {
  struct Prober {
    std::string worker;
    std::string address;
  };
  std::vector<ProbePort> ports;
  std::vector<Prober> probers;  // by port
};
// Of the workers that are there and stay, `workers` by name. FailedPrecondition: one of them names
// no network interface, or they are on fewer than two hosts.
absl::StatusOr<ProbePlaces> ProbePlacesOf(std::span<const WorkerRecord> workers);

// One measurement of the network: the rounds of ScheduleProbes, one after the other, the links of a
// round side by side. Confined to the callbacks of its gateway, and never blocks. Thread-safe.
class NetworkMeasurement : public std::enable_shared_from_this<NetworkMeasurement> {
 public:
  struct Progress {
    int32_t links = 0;
    int32_t measured_links = 0;
    int64_t received_bytes = 0;
  };
  struct Result {
    std::vector<LinkFigures> links;
    // Links between whose ends no way leads; each says which.
    std::vector<absl::Status> failures;
  };
  struct Options {
    ProbeGateway& gateway;
    ProbePlaces places;
    absl::Duration link_time;
    int64_t link_bytes = 0;
    std::function<std::string()> new_token;  // 16 bytes that cannot be guessed
    std::function<void(const Progress&)> on_progress;
    // Once, at the end. Unavailable names the worker that did not answer, or the link that broke;
    // OutOfRange the link with an impossible figure; Cancelled.
    absl::AnyInvocable<void(absl::StatusOr<Result>)> on_end;
  };

  // The gateway outlives it.
  static std::shared_ptr<NetworkMeasurement> Create(Options options);
  // Once. Callbacks keep it until it has ended.
  void Start() { StartRound(); }
  // It ends with Cancelled after the round that runs.
  void Cancel();

 private:
  explicit NetworkMeasurement(Options options);

  void StartRound();
  void Open(const ProbeLink& link);
  void Run(const ProbeLink& link, const v1::OpenProbeResponse& to, const std::string& token);
  void OnResult(const ProbeLink& link, const absl::StatusOr<v1::RunProbeResponse>& result);
  // A link of the round is over; the last one starts the next.
  void OnLinkOver(const absl::Status& status);

  absl::Status Explain(const ProbeLink& link, int port, const absl::Status& status) const;

  Options options_;
  const std::vector<std::vector<ProbeLink>> rounds_;

  Mutex mutex_;
  size_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t links_open_ ABSL_GUARDED_BY(mutex_) = 0;  // of the round
  absl::Status status_ ABSL_GUARDED_BY(mutex_);    // the first error
  Result result_ ABSL_GUARDED_BY(mutex_);
  Progress progress_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
