#pragma once

#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"
#include "crossmesh/v1/execution_service.grpc.pb.h"
#include "worker/worker.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {

// The controller's end of an Execute call. Waits end with false after 20 s.
class Execution final : public ClientBidiStream<v1::ExecuteRequest, v1::ExecuteResponse> {
 public:
  explicit Execution(const std::string& address) {
    auto channel = BuildRpcChannel({.address = address});
    CHECK_OK(channel);
    stub_ = v1::ExecutionService::NewStub(*channel);
  }

  static std::shared_ptr<Execution> Open(const Worker& worker, v1::ExecuteRequest start,
                                         std::string part) {
    auto execution = std::make_shared<Execution>(worker.execution_address());
    execution->part_ = std::move(part);
    Start(execution, [&](grpc::ClientContext* context, Reactor* reactor) {
      execution->stub_->async()->Execute(context, reactor);
    });
    execution->Send(std::move(start));
    return execution;
  }

  bool WaitUntil(const std::function<bool(const Execution&)>& wanted) {
    MutexLock lock(mutex_);
    while (!wanted(*this)) {
      if (changed_.WaitFor(mutex_, absl::Seconds(20))) return wanted(*this);
    }
    return true;
  }
  bool WaitFor(v1::ExecuteResponse::MessageCase message) {
    return WaitUntil([&](const Execution& e) { return e.Find(message) != nullptr; });
  }
  absl::Status WaitForEnd() {
    EXPECT_TRUE(WaitUntil([](const Execution& e) { return e.end_.has_value(); }));
    return end_.value_or(absl::OkStatus());
  }
  // After WaitFor.
  const v1::ExecuteResponse* Find(v1::ExecuteResponse::MessageCase message) const {
    for (const auto& response : responses_) {
      if (response.message_case() == message) return &response;
    }
    return nullptr;
  }

 private:
  void OnMessage(v1::ExecuteResponse response) override {
    if (response.has_need_part()) {
      v1::ExecuteRequest piece;
      piece.mutable_piece()->set_data(part_);
      piece.mutable_piece()->set_last(true);
      Send(std::move(piece));
    }
    MutexLock lock(mutex_);
    responses_.push_back(std::move(response));
    changed_.SignalAll();
  }
  void OnEnd(const absl::Status& status) override {
    MutexLock lock(mutex_);
    end_ = status;
    changed_.SignalAll();
  }

  std::unique_ptr<v1::ExecutionService::Stub> stub_;
  std::string part_;
  Mutex mutex_;
  CondVar changed_;
  // Guarded by mutex_ until the call has ended; predicates run under it.
  std::vector<v1::ExecuteResponse> responses_;
  std::optional<absl::Status> end_;
};

}  // namespace crossmesh
