#pragma once

#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"

#include <memory>
#include <string>
#include <utility>

#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// Stubs of a service of workers, one for each address. Thread-safe; never blocks.
template <typename Service>
class WorkerStubs {
 public:
  using Stub = typename Service::Stub;

  // `insecure` allows addresses that are not local.
  explicit WorkerStubs(bool insecure) : insecure_(insecure) {}

  // As BuildRpcChannel.
  absl::StatusOr<std::shared_ptr<Stub>> StubFor(const std::string& address) {
    {
      const MutexLock lock(mutex_);
      const auto found = stubs_.find(address);
      if (found != stubs_.end()) return found->second;
    }
    ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                     BuildRpcChannel({.address = address,
                                      .insecure = insecure_,
                                      .reconnect_pause_max = absl::Seconds(3),
                                      .session = true}));
    channel->GetState(/*try_to_connect=*/true);
    std::shared_ptr<Stub> stub = Service::NewStub(channel);
    const MutexLock lock(mutex_);
    return stubs_.try_emplace(address, std::move(stub)).first->second;
  }

  // A worker has come to this address: connects to it now, with nothing remembered of failures to
  // reach one that was there before.
  void Connect(const std::string& address) {
    Forget(address);
    // What is wrong with the address is said when it is used.
    StubFor(address).IgnoreError();
  }

  // Nobody is there any more. Calls in progress go on.
  void Forget(const std::string& address) {
    std::shared_ptr<Stub> forgotten;  // goes away without the lock
    const MutexLock lock(mutex_);
    const auto found = stubs_.find(address);
    if (found == stubs_.end()) return;
    forgotten = std::move(found->second);
    stubs_.erase(found);
  }

 private:
  const bool insecure_;
  Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<Stub>> stubs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
