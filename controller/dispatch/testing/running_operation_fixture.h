#pragma once

#include "common/base/check.h"
#include "common/testing/status_matchers.h"
#include "common/wire/status_code.h"
#include "controller/dispatch/planned_reshard.h"
#include "controller/dispatch/running_operation.h"
#include "controller/dispatch/running_table.h"
#include "controller/dispatch/testing/dispatch_fixture.h"
#include "controller/dispatch/testing/fake_gateway.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {

inline absl::Status ErrorOf(const v1::Operation& operation) {
  return StatusFromCode(operation.error_code(), operation.error());
}

// Workers w-a to w-d, with a device each, and what operations do with them.
class RunningOperationTest : public DispatchFixture {
 protected:
  RunningOperationTest() {
    for (const char* host : {"a", "b", "c", "d"}) Join(host);
  }

  OperationRequest Request(const std::string& id) {
    OperationRequest request;
    request.shown.set_id(id);
    request.shown.set_state(v1::OPERATION_STATE_PREPARING);
    request.start.set_operation_id(id);
    request.start.set_source_storage("s");
    request.start.set_destination_storage("t");
    request.plan = [this](auto done) {
      ++planned_;
      done(PlannedReshard::Create({.tensors = tensors_}, {}, clock_));
    };
    return request;
  }

  void Start(OperationRequest request) {
    sink_.latest.emplace(request.shown.id(), request.shown);
    ASSERT_OK(running_.Start(std::move(request)));
    Run();
  }
  FakeTaskCall& At(const std::string& host) {
    FakeTaskCall* call = gateway_.Latest(absl::StrCat("at-", host));
    CHECK(call != nullptr) << "no call to worker " << host;
    return *call;
  }
  bool Called(const std::string& host) const {
    return gateway_.Latest(absl::StrCat("at-", host)) != nullptr;
  }
  // The workers that take part in the latest attempt, by host.
  std::vector<std::string> Hosts() const {
    std::vector<std::string> hosts;
    for (const auto& peer : gateway_.calls.back()->start.peers()) {
      hosts.push_back(peer.worker().substr(2));
    }
    return hosts;
  }
  void AcceptAll() {
    for (const std::string& host : Hosts()) At(host).Accept();
    Run();
  }
  // The worker ends its task with OK: its devices first, if any.
  void Succeed(const std::string& host) {
    At(host).Finish();
    At(host).Report(absl::OkStatus());
    Run();
  }
  void Resolve(const std::string& host, const absl::Status& status = absl::OkStatus()) {
    At(host).Resolved(status);
    Run();
  }
  struct Told {
    std::string worker;
    uint32_t attempt = 1;
    int64_t moved_bytes = 0;
  };
  void Progress(const std::string& id, const Told& told) {
    running_.With(id, [told](RunningOperation& operation) {
      operation.Progress(told.worker, told.attempt, told.moved_bytes);
    });
  }
  void Cancel(const std::string& id, const std::string& reason) {
    running_.With(id, [reason](RunningOperation& operation) { operation.Cancel(reason); });
  }
  void LoseWorker(const std::string& host) {
    running_.WithAll([name = absl::StrCat("w-", host)](RunningOperation& operation) {
      operation.WorkerIsLost(name, absl::UnavailableError("its session ended"));
    });
    Run();
  }
  // All workers do their part, and those of these hosts commit.
  void FinishAll(const std::string& id, const std::vector<std::string>& receivers = {"c", "d"}) {
    AcceptAll();
    for (const std::string& host : Hosts()) Succeed(host);
    ResolveAll(receivers);
    EXPECT_EQ(Latest(id).state(), v1::OPERATION_STATE_COMMITTED);
  }
  void ResolveAll(const std::vector<std::string>& receivers = {"c", "d"}) {
    for (const std::string& host : receivers) Resolve(host);
  }
  void FailAsUnavailable(const std::string& host, const std::string& blamed) {
    FakeTaskCall& call = At(host);
    const absl::Status status = absl::UnavailableError("the root is gone");
    call.Finish(status);
    call.Report(status, {absl::StrCat("w-", blamed)});
    Run();
  }
  const v1::Operation& Latest(const std::string& id) { return sink_.latest[id]; }

  FakeGateway<FakeTaskCall> gateway_;
  FakeSink<v1::Operation> sink_;
  // A tensor that a.0 and b.0 both hold, and a replica of it on each of c.0 and d.0.
  std::shared_ptr<const TensorTable> tensors_ = SampleTable().Make();
  int planned_ = 0;
  RunningTable<RunningOperation> running_{{.gateway = gateway_,
                                           .communicators = communicators_,
                                           .workers = registry_,
                                           .queue = queue_,
                                           .planners = planners_,
                                           .gate = gate_,
                                           .clock = clock_,
                                           .sink = sink_,
                                           .metrics = metrics_,
                                           .epoch = 7}};
};

}  // namespace crossmesh
