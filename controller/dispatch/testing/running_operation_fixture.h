#pragma once

#include "common/base/check.h"
#include "common/base/fake_clock.h"
#include "common/mesh/mesh.h"
#include "common/metrics/controller_metrics.h"
#include "common/testing/status_matchers.h"
#include "common/wire/status_code.h"
#include "controller/dispatch/communicator_leases.h"
#include "controller/dispatch/planned_reshard.h"
#include "controller/dispatch/running_operation.h"
#include "controller/dispatch/running_table.h"
#include "controller/dispatch/testing/fake_communicator_gateway.h"
#include "controller/dispatch/testing/fake_gateway.h"
#include "controller/dispatch/testing/manual_task_queue.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {

// What the sink was told, by operation.
class FakeSink final : public RunSink<v1::Operation> {
 public:
  void Commit(std::shared_ptr<const v1::Operation> operation,
              absl::AnyInvocable<void(absl::Status)> done) override {
    ++intents;
    latest[operation->id()] = *operation;
    done(intent_result);
  }
  void OnChange(std::shared_ptr<const v1::Operation> operation) override {
    v1::Operation& known = latest[operation->id()];
    EXPECT_GT(operation->revision(), known.revision());
    EXPECT_FALSE(known.has_end_time()) << "ended twice";
    EXPECT_EQ(operation->has_end_time(), operation->has_report());
    known = *operation;
  }

  absl::Status intent_result;
  int intents = 0;
  std::map<std::string, v1::Operation> latest;
};

inline absl::Status ErrorOf(const v1::Operation& operation) {
  return StatusFromCode(operation.error_code(), operation.error());
}

// Tests tell operations of lost workers themselves.
class FakeNews final : public MembershipListener {
 public:
  void OnWorkerLost(const WorkerRecord& /*worker*/, const absl::Status& /*why*/) override {}
  void OnWorkerReady(const WorkerRecord& /*worker*/) override {}
  void OnGpuProcessLost(const RankName& process, const absl::Status& why) override {
    communicators->OnProcessLost(process, why);
  }

  CommunicatorLeases* communicators = nullptr;
};

// A tensor of 16 rows that a.0 and b.0 both hold, and a replica of it on each of c.0 and d.0.
inline std::shared_ptr<const TensorTable> ReplicatedTable() {
  TensorTable::Spec spec{
      .sources = {{*ParseMesh("copy=2 on a.0,b.0"), *ParseLayout("[-, -]")}},
      .destinations = {{*ParseMesh("replica=2 on c.0,d.0"), *ParseLayout("[-, -]")}},
      .groups = {{.shape = *Shape::Create(std::vector<int64_t>{16, 4}), .type = DataType::kF32}},
      .group_of_tensor = {0},
      .replica_axes = {"replica"}};
  return std::make_shared<const TensorTable>(*TensorTable::Create(std::move(spec)));
}

// Workers w-a to w-d, with a device each, and what operations do with them.
class RunningOperationTest : public ::testing::Test {
 protected:
  RunningOperationTest() {
    news_.communicators = &communicators_;
    for (const char* name : {"a", "b", "c", "d"}) Join(name);
  }

  uint64_t Join(const std::string& host) {
    WorkerRecord record{.name = absl::StrCat("w-", host),
                        .devices = {{host, 0}},
                        .execution_address = absl::StrCat("at-", host),
                        .data_address = absl::StrCat("data-", host)};
    return *registry_.Register(std::move(record));
  }

  OperationRequest Request(const std::string& id) {
    OperationRequest request;
    request.shown.set_id(id);
    request.shown.set_state(v1::OPERATION_STATE_PREPARING);
    request.start.set_operation_id(id);
    request.start.set_source_storage("s");
    request.start.set_destination_storage("t");
    request.plan = [this] {
      ++planned_;
      return PlannedReshard::Create({.tensors = tensors_}, {}, clock_);
    };
    return request;
  }

  void Start(OperationRequest request) {
    sink_.latest.emplace(request.shown.id(), request.shown);
    ASSERT_OK(running_.Start(std::move(request)));
    Run();
  }
  void Run() {
    while (queue_.Run() || planners_.Run()) {
    }
  }
  void Advance(absl::Duration step) {
    clock_.Advance(step);
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
  void FailAsUnavailable(const std::string& host, const std::string& blamed) {
    FakeTaskCall& call = At(host);
    const absl::Status status = absl::UnavailableError("the root is gone");
    call.Finish(status);
    call.Report(status, {absl::StrCat("w-", blamed)});
    Run();
  }
  const v1::Operation& Latest(const std::string& id) { return sink_.latest[id]; }

  FakeClock clock_;
  ManualTaskQueue queue_{clock_};
  ManualTaskQueue planners_{clock_};
  FakeGateway<FakeTaskCall> gateway_;
  FakeSink sink_;
  FakeNews news_;
  WorkerRegistry registry_{{}, clock_, news_};
  std::shared_ptr<const TensorTable> tensors_ = ReplicatedTable();
  int planned_ = 0;
  FakeCommunicatorGateway communicator_gateway_;
  ControllerMetrics metrics_;
  CommunicatorLeases communicators_{{.gateway = communicator_gateway_,
                                     .workers = registry_,
                                     .queue = queue_,
                                     .clock = clock_,
                                     .metrics = metrics_,
                                     .bounds = {.gpu_bytes_max = 100, .expected_bytes = 40}}};
  RunningTable<RunningOperation> running_{{.gateway = gateway_,
                                           .communicators = communicators_,
                                           .workers = registry_,
                                           .queue = queue_,
                                           .planners = planners_,
                                           .clock = clock_,
                                           .sink = sink_,
                                           .metrics = metrics_,
                                           .epoch = 7}};
};

}  // namespace crossmesh
