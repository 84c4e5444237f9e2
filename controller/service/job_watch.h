#pragma once

#include "common/base/status_macros.h"
#include "common/rpc/request_size.h"
#include "common/rpc/server_streams.h"
#include "controller/service/job_registry.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// A stream of a job's states, until it has ended. A Response has the job in one of its fields.
template <typename Subject, typename Response>
class JobWatch final : public ServerWriteStream<Response> {
 public:
  using Stream = ServerWriteStream<Response>;
  using Registry = JobRegistry<Subject>;

  JobWatch(Registry& registry, std::string id) : registry_(registry), id_(std::move(id)) {}

  // A stream that follows the job of this id; one that ends at once where there is none. `field`
  // gives the place of the job in a response.
  static typename Stream::Reactor* Follow(Registry& registry, const absl::StatusOr<std::string>& id,
                                          Subject* (Response::*field)()) {
    auto watch = std::make_shared<JobWatch>(registry, id.ok() ? *id : "");
    if (id.ok()) {
      watch->number_ = registry.Watch(
          *id, [watch, field](const absl::StatusOr<std::shared_ptr<const Subject>>& job) {
            return watch->Tell(job, field);
          });
    } else {
      watch->End(id.status());
    }
    return Stream::Serve(std::move(watch));
  }

 private:
  bool Tell(const absl::StatusOr<std::shared_ptr<const Subject>>& job,
            Subject* (Response::*field)()) {
    if (!job.ok()) {
      this->End(job.status());
      return false;
    }
    Response response;
    *(response.*field)() = **job;
    const bool taken = this->Send(std::move(response));
    if ((*job)->has_end_time()) this->End(absl::OkStatus());
    return taken;
  }
  // gRPC calls it only after Serve, by when the number is there.
  void OnEnd() override { registry_.Unwatch(id_, number_); }

  Registry& registry_;
  const std::string id_;
  uint64_t number_ = 0;
};

// The job that a request names; ResourceExhausted where the request is larger than it may be.
template <typename Request>
absl::StatusOr<std::string> WatchedId(const Request& request) {
  RETURN_IF_ERROR(CheckRequestBytes(request));
  return request.id();
}

}  // namespace crossmesh
