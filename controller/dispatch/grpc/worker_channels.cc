#include "controller/dispatch/grpc/worker_channels.h"

#include "common/base/status_macros.h"
#include "common/rpc/channel.h"

#include <utility>

#include <absl/time/time.h>

namespace crossmesh {

absl::StatusOr<std::shared_ptr<grpc::Channel>> WorkerChannels::ChannelTo(
    const std::string& address) {
  {
    const MutexLock lock(mutex_);
    const auto found = channels_.find(address);
    if (found != channels_.end()) return found->second;
  }
  // Tasks keep a stream open on it, and a worker that falls silent must be noticed.
  ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel,
                   BuildRpcChannel({.address = address,
                                    .insecure = insecure_,
                                    .reconnect_pause_max = absl::Seconds(3),
                                    .session = true}));
  channel->GetState(/*try_to_connect=*/true);
  const MutexLock lock(mutex_);
  return channels_.try_emplace(address, std::move(channel)).first->second;
}

void WorkerChannels::Connect(const std::string& address) {
  Forget(address);
  // What is wrong with the address is said when it is used.
  ChannelTo(address).IgnoreError();
}

void WorkerChannels::Forget(const std::string& address) {
  std::shared_ptr<grpc::Channel> forgotten;  // goes away without the lock
  const MutexLock lock(mutex_);
  const auto found = channels_.find(address);
  if (found == channels_.end()) return;
  forgotten = std::move(found->second);
  channels_.erase(found);
}

}  // namespace crossmesh
