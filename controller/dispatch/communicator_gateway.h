#pragma once

#include "common/communicators/communicator_key.h"
#include "common/communicators/preflight_report.h"
#include "crossmesh/v1/communicator_service.pb.h"

#include <cstdint>
#include <string>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// One rank of a communicator, at its worker.
struct CommunicatorRank {
  CommunicatorKey key;
  int32_t rank = 0;  // index into the key's
};

// An order to make a communicator.
struct CommunicatorCreation {
  CommunicatorRank at;
  uint64_t ticket = 0;
  std::string id;
  absl::Duration timeout;  // until it is ready
};

struct CommunicatorDestruction {
  CommunicatorRank at;
  uint64_t ticket = 0;
  absl::Duration timeout;  // until it is gone
};

// The way to the communicators of workers' GPUs, as CommunicatorService has it. Thread-safe; never
// blocks. Each callback is called once, by any thread, maybe before the call returns. Errors are
// the worker's own; Unavailable and DeadlineExceeded also when it does not answer.
class CommunicatorGateway {
 public:
  virtual ~CommunicatorGateway() = default;

  using OnPreflight = absl::AnyInvocable<void(absl::StatusOr<PreflightReport>)>;
  virtual void GetPreflight(const std::string& worker_address, const CommunicatorRank& at,
                            OnPreflight on_preflight) = 0;
  using OnMinted = absl::AnyInvocable<void(absl::StatusOr<std::string>)>;
  virtual void MintId(const std::string& worker_address, const CommunicatorRank& at,
                      OnMinted on_minted) = 0;
  // With the bytes that it took of the GPU's memory.
  using OnCreated = absl::AnyInvocable<void(absl::StatusOr<int64_t>)>;
  virtual void Create(const std::string& worker_address, const CommunicatorCreation& creation,
                      OnCreated on_created) = 0;
  // All ranks at once; `timeout`: until it is done.
  using OnMeasured = absl::AnyInvocable<void(absl::StatusOr<v1::MeasureGpuResponse>)>;
  virtual void Measure(const std::string& worker_address, const CommunicatorRank& at,
                       absl::Duration timeout, OnMeasured on_measured) = 0;
  using OnGone = absl::AnyInvocable<void(absl::Status)>;
  virtual void Destroy(const std::string& worker_address,
                       const CommunicatorDestruction& destruction, OnGone on_gone) = 0;
  virtual void Stop(const std::string& worker_address, const CommunicatorRank& at,
                    const std::string& reason, OnGone on_gone) = 0;
};

}  // namespace crossmesh
