#pragma once

#include "tests/simulation/simulated_network.h"
#include "worker/wire/caller.h"

#include <memory>
#include <utility>

#include <absl/status/status.h>

namespace crossmesh {

// A controller's end of a call to a worker. Only used in the process of the controller.
template <typename Response>
class SimulatedCallClient {
 public:
  virtual ~SimulatedCallClient() = default;
  virtual void OnResponse(const Response& response) = 0;
};

// What the task, or the program, sees of the call.
template <typename Response>
class SimulatedCaller final : public Caller<Response> {
 public:
  SimulatedCaller(std::shared_ptr<SimulatedStream> stream,
                  std::shared_ptr<SimulatedCallClient<Response>> client)
      : stream_(std::move(stream)), client_(std::move(client)) {}
  void Say(const Response& response) override {
    stream_->Send(1, "hears from a worker",
                  [client = client_, response] { client->OnResponse(response); });
  }
  void End(const absl::Status& status) override { stream_->End(1, status); }

 private:
  const std::shared_ptr<SimulatedStream> stream_;
  const std::shared_ptr<SimulatedCallClient<Response>> client_;
};

}  // namespace crossmesh
