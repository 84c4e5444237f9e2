#pragma once

#include "common/base/status_macros.h"
#include "common/rpc/server.h"
#include "common/rpc/server_streams.h"
#include "controller/service/run_registry.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// A stream of a run's states, until it has ended. A Response has the run in one of its fields.
template <typename Subject, typename Response>
class RunWatch final : public ServerWriteStream<Response> {
 public:
  using Stream = ServerWriteStream<Response>;
  using Registry = RunRegistry<Subject>;

  RunWatch(Registry& registry, std::string id) : registry_(registry), id_(std::move(id)) {}

  // A stream that follows the run of this id; one that ends at once where there is none. `field`
  // gives the place of the run in a response.
  static typename Stream::Reactor* Follow(Registry& registry, const absl::StatusOr<std::string>& id,
                                          Subject* (Response::*field)()) {
    auto watch = std::make_shared<RunWatch>(registry, id.ok() ? *id : "");
    if (id.ok()) {
      watch->number_ = registry.Watch(
          *id, [watch, field](const absl::StatusOr<std::shared_ptr<const Subject>>& run) {
            return watch->Tell(run, field);
          });
    } else {
      watch->End(id.status());
    }
    return Stream::Serve(std::move(watch));
  }

 private:
  bool Tell(const absl::StatusOr<std::shared_ptr<const Subject>>& run,
            Subject* (Response::*field)()) {
    if (!run.ok()) {
      this->End(run.status());
      return false;
    }
    Response response;
    *(response.*field)() = **run;
    const bool taken = this->Send(std::move(response));
    if ((*run)->has_end_time()) this->End(absl::OkStatus());
    return taken;
  }
  // gRPC calls it only after Serve, by when the number is there.
  void OnEnd() override { registry_.Unwatch(id_, number_); }

  Registry& registry_;
  const std::string id_;
  uint64_t number_ = 0;
};

// The run that a request names; ResourceExhausted where the request is larger than it may be.
template <typename Request>
absl::StatusOr<std::string> WatchedId(const Request& request) {
  RETURN_IF_ERROR(CheckRequestBytes(request));
  return request.id();
}

}  // namespace crossmesh
