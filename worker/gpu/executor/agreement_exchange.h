#pragma once

#include "worker/gpu/communicators/communicator.h"
#include "worker/gpu/executor/execution_resources.h"
#include "worker/gpu/executor/gpu_binding.h"

#include <cstdint>
#include <span>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Makes sure, before the first step of an execution, that nothing is received from a peer that runs
// something else: one group of messages of one ExecutionAgreement each, through a place in staging
// after those of the legs; in a broadcast group one all-gather, for which there is
// a ring anyway. Confined to the thread of the Gpu.
//
// They go where the steps' messages go and no other way, since NCCL connects two ranks once for
// each direction, with buffers of their own. A rank that only sends so hears of no peer: one that
// does not run the same fails, takes none of its messages, and is noticed as one that stalls.
class AgreementExchange {
 public:
  // Of staging, that an execution takes in all.
  static int64_t StagingBytes(const GpuBinding& binding);

  // All must outlive this; `ranks` by DeviceRank.
  AgreementExchange(GpuBinding& binding, Communicator& communicator, std::span<const int> ranks,
                    ExecutionResources& shared)
      : binding_(binding), communicator_(communicator), ranks_(ranks), shared_(shared) {}

  absl::Status Begin();
  // Whether all peers that it hears of have agreed. FailedPrecondition naming the first one that
  // does not; errors of the communicator and the GPU. To be called until it is one of these.
  absl::StatusOr<bool> Advance();
  // Whether something of it may be on the streams.
  bool is_under_way() const { return stage_ == Stage::kExchanging || stage_ == Stage::kReading; }

 private:
  enum class Stage : uint8_t { kNotBegun, kExchanging, kReading, kEnded };

  uint64_t AddressOf(size_t place) const;
  absl::Status BeginReading();
  absl::Status Compare();

  GpuBinding& binding_;
  Communicator& communicator_;
  const std::span<const int> ranks_;
  ExecutionResources& shared_;
  Stage stage_ = Stage::kNotBegun;
};

}  // namespace crossmesh
