#pragma once

#include "crossmesh/v1/probe_service.pb.h"

#include <string>

#include <absl/functional/any_invocable.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// The way to workers' probes. Thread-safe; never blocks. Each callback is called once, by any
// thread, maybe before the call returns. Errors are the worker's own; Unavailable and
// DeadlineExceeded also when it does not answer.
class ProbeGateway {
 public:
  virtual ~ProbeGateway() = default;

  // A probe's receiving end.
  using OnOpened = absl::AnyInvocable<void(absl::StatusOr<v1::OpenProbeResponse>)>;
  virtual void Open(const std::string& worker_address, v1::OpenProbeRequest request,
                    OnOpened on_opened) = 0;
  // Its sending end.
  using OnResult = absl::AnyInvocable<void(absl::StatusOr<v1::RunProbeResponse>)>;
  virtual void Run(const std::string& worker_address, v1::RunProbeRequest request,
                   OnResult on_result) = 0;
};

}  // namespace crossmesh
