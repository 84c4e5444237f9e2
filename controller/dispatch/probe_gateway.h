#pragma once

#include <cstdint>
#include <string>

#include <absl/functional/any_invocable.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// Where a worker listens for a probe, as ProbeService has it.
struct ProbeEndpoint {
  std::string ip;
  int32_t port = 0;
};

// A probe's receiving end.
struct ProbeOpening {
  std::string interface;
  std::string token;
  absl::Duration time;
};

// Its sending end.
struct ProbeRun {
  std::string interface;
  ProbeEndpoint to;
  std::string token;
  absl::Duration time;
  int64_t bytes = 0;
};

struct ProbeResult {
  int64_t received_bytes = 0;
  int64_t bytes_per_second = 0;
  int64_t round_trip_ns = 0;
};

// The way to workers' probes. Thread-safe; never blocks. Each callback is called once, by any
// thread, maybe before the call returns. Errors are the worker's own; Unavailable and
// DeadlineExceeded also when it does not answer.
class ProbeGateway {
 public:
  virtual ~ProbeGateway() = default;

  using OnOpened = absl::AnyInvocable<void(absl::StatusOr<ProbeEndpoint>)>;
  virtual void Open(const std::string& worker_address, const ProbeOpening& opening,
                    OnOpened on_opened) = 0;
  using OnResult = absl::AnyInvocable<void(absl::StatusOr<ProbeResult>)>;
  virtual void Run(const std::string& worker_address, const ProbeRun& run, OnResult on_result) = 0;
};

}  // namespace crossmesh
