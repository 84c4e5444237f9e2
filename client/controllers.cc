#include "client/controllers.h"

#include "common/base/status_macros.h"
#include "common/rpc/channel.h"

#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

// With several controllers: how long a call waits for a connection. The attempt itself goes on, for
// the next time that this one is asked; a standby names a leader that has stopped until its lease
// ends, so that a call comes back to that one some times.
constexpr absl::Duration kConnectWait = absl::Milliseconds(250);
// And how long one may take to answer a ping.
constexpr absl::Duration kAnswerMax = absl::Seconds(2);
constexpr absl::Duration kPingInterval = absl::Milliseconds(2500);
// One that stood by has a new server when it leads: it is soon tried again.
constexpr absl::Duration kReconnectPauseMax = absl::Seconds(1);

}  // namespace

Client::Stubs::Stubs(std::shared_ptr<grpc::Channel> connection)
    : channel(std::move(connection)),
      controllers(v1::ControllerService::NewStub(channel)),
      meshes(v1::MeshService::NewStub(channel)),
      manifests(v1::ManifestService::NewStub(channel)),
      networks(v1::NetworkService::NewStub(channel)),
      reshards(v1::ReshardService::NewStub(channel)),
      operations(v1::OperationService::NewStub(channel)),
      pipelines(v1::PipelineService::NewStub(channel)),
      workers(v1::WorkerService::NewStub(channel)) {}

Client::Controllers::Controllers(std::vector<std::string> addresses, bool insecure)
    : addresses_(std::move(addresses)),
      several_(addresses_.size() > 1),
      insecure_(insecure),
      route_(addresses_) {}

absl::Status Client::Controllers::Check() {
  for (const std::string& address : addresses_) RETURN_IF_ERROR(StubsOf(address).status());
  return absl::OkStatus();
}

absl::Status Client::Controllers::Call(absl::FunctionRef<absl::Status(Stubs&)> call) {
  std::string address;
  {
    const MutexLock lock(mutex_);
    address = route_.current();
  }
  absl::Status status = CallAt(address, call);
  const MutexLock lock(mutex_);
  route_.Ended(address, status);
  return status;
}

absl::Status Client::Controllers::CallAt(const std::string& address,
                                         absl::FunctionRef<absl::Status(Stubs&)> call) {
  const absl::StatusOr<std::shared_ptr<Stubs>> stubs = StubsOf(address);
  // Its own addresses were looked at; this one was named by a controller.
  if (!stubs.ok()) return absl::UnavailableError(stubs.status().message());
  if (several_ && !AwaitConnection(*(*stubs)->channel, kConnectWait)) {
    return absl::UnavailableError(
        absl::StrCat(address, ": no connection within ", absl::FormatDuration(kConnectWait)));
  }
  return call(**stubs);
}

absl::StatusOr<std::shared_ptr<Client::Stubs>> Client::Controllers::StubsOf(
    const std::string& address) {
  const MutexLock lock(mutex_);
  std::shared_ptr<Stubs>& stubs = stubs_[address];
  if (stubs != nullptr) return stubs;
  RpcChannelOptions options{.address = address, .insecure = insecure_};
  if (several_) {
    options.reconnect_pause_max = kReconnectPauseMax;
    options.session = true;
    options.keepalive_interval = kPingInterval;
    options.keepalive_timeout = kAnswerMax;
  }
  ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel, BuildRpcChannel(options));
  stubs = std::make_shared<Stubs>(std::move(channel));
  return stubs;
}

}  // namespace crossmesh
