#pragma once

#include "common/rpc/server_streams.h"
#include "controller/service/operation_registry.h"

#include <memory>
#include <string>
#include <utility>

namespace crossmesh {

// A stream of an operation's states, until it has ended. Response has an `operation`.
template <typename Response>
class OperationWatch final : public ServerWriteStream<Response>, public OperationWatcher {
 public:
  using Stream = ServerWriteStream<Response>;

  OperationWatch(OperationRegistry& registry, std::string id)
      : registry_(registry), id_(std::move(id)) {}

  // A stream that follows operation `id`.
  static typename Stream::Reactor* Follow(OperationRegistry& registry, const std::string& id) {
    auto watch = std::make_shared<OperationWatch>(registry, id);
    registry.Watch(id, watch);
    return Stream::Serve(std::move(watch));
  }
  // A stream that ends at once.
  static typename Stream::Reactor* Refuse(OperationRegistry& registry, const absl::Status& status) {
    auto watch = std::make_shared<OperationWatch>(registry, "");
    watch->End(status);
    return Stream::Serve(std::move(watch));
  }

  bool OnOperation(const v1::Operation& operation) override {
    Response response;
    *response.mutable_operation() = operation;
    const bool taken = this->Send(std::move(response));
    if (operation.has_report()) this->End(absl::OkStatus());
    return taken;
  }
  void OnNoOperation(const absl::Status& status) override { this->End(status); }

 private:
  void OnEnd() override { registry_.Unwatch(id_, this); }

  OperationRegistry& registry_;
  const std::string id_;
};

}  // namespace crossmesh
