#pragma once

#include "common/base/mutex.h"

#include <memory>
#include <string>

#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>
#include <grpcpp/channel.h>

namespace crossmesh {

// The one gRPC channel to each worker, for all calls to it, by address. Thread-safe; never blocks.
class WorkerChannels {
 public:
  // `insecure` allows addresses that are not local.
  explicit WorkerChannels(bool insecure) : insecure_(insecure) {}

  // As BuildRpcChannel. A channel that is new connects now.
  absl::StatusOr<std::shared_ptr<grpc::Channel>> ChannelTo(const std::string& address);

  // A worker has come to this address: connects to it now, with nothing remembered of failures to
  // reach the one that was there before.
  void Connect(const std::string& address);
  // The worker there is gone. Calls in progress go on.
  void Forget(const std::string& address);

 private:
  const bool insecure_;

  Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<grpc::Channel>> channels_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
