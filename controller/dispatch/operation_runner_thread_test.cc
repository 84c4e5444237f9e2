// The runner with real threads: calls answered, cancelled and lost at any moment.

#include "common/base/mutex.h"
#include "common/mesh/mesh.h"
#include "common/testing/status_matchers.h"
#include "controller/dispatch/operation_runner.h"
#include "controller/dispatch/testing/fake_communicator_gateway.h"
#include "controller/dispatch/thread_task_queue.h"

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr const char* kHosts[] = {"a", "b", "c", "d"};

// Workers that do at once what they are told, each on a thread of its own.
class DiligentWorkers final : public WorkerGateway {
 public:
  explicit DiligentWorkers(const Clock& clock) {
    for (const char* host : kHosts) {
      threads_[absl::StrCat("at-", host)] =
          std::make_unique<ThreadTaskQueue>(ThreadTaskQueue::Options{.name = host}, clock);
    }
  }

  std::unique_ptr<TaskCall> Execute(const std::string& worker_address, const TaskStart& start,
                                    TaskListener& listener) override {
    {
      const MutexLock lock(mutex_);
      ++calls_;
    }
    TaskQueue& thread = *threads_.at(worker_address);
    thread.Post([part = start.part, &listener] {
      listener.OnAccepted();
      for (const DeviceRank device : part->spec().devices) {
        if (part->tensors().replica_of(device) >= 0) {
          listener.OnDeviceDone(device, absl::OkStatus());
        }
      }
      listener.OnReport({});
    });
    return std::make_unique<Call>(*this, thread, listener);
  }
  // After every call has ended: a listener may wait for that beyond the end of its operation.
  void Stop() {
    {
      const MutexLock lock(mutex_);
      while (calls_ > 0) call_ended_.Wait(mutex_);
    }
    for (const auto& [address, thread] : threads_) thread->Stop();
  }

 private:
  class Call final : public TaskCall {
   public:
    Call(DiligentWorkers& workers, TaskQueue& thread, TaskListener& listener)
        : workers_(workers), thread_(thread), listener_(listener) {}
    ~Call() override { End(); }
    void Cancel(const std::string& reason) override {
      thread_.Post([&listener = listener_, reason] {
        listener.OnReport({.status = absl::CancelledError(reason)});
      });
    }
    void Resolve(const std::vector<DeviceRank>& devices, bool /*commit*/) override {
      thread_.Post(
          [&listener = listener_, devices] { listener.OnResolved(devices, absl::OkStatus()); });
    }
    void PeerLost(const std::string& /*worker*/, const std::string& /*reason*/) override {}
    void Acknowledge() override { End(); }

   private:
    void End() {
      if (std::exchange(ended_, true)) return;
      thread_.Post([&workers = workers_, &listener = listener_] {
        listener.OnCallEnded(absl::OkStatus());
        workers.OnCallEnded();
      });
    }

    bool ended_ = false;
    DiligentWorkers& workers_;
    TaskQueue& thread_;
    TaskListener& listener_;
  };

  void OnCallEnded() {
    const MutexLock lock(mutex_);
    --calls_;
    call_ended_.Signal();
  }

  absl::flat_hash_map<std::string, std::unique_ptr<ThreadTaskQueue>> threads_;
  Mutex mutex_;
  CondVar call_ended_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

class CountingSink final : public OperationSink {
 public:
  void CommitIntent(const OperationSnapshot& /*operation*/,
                    absl::AnyInvocable<void(absl::Status)> done) override {
    done(absl::OkStatus());
  }
  void OnChange(const OperationSnapshot& /*operation*/) override {}
  void OnFinish(const OperationSnapshot& operation) override {
    EXPECT_TRUE(IsTerminal(operation.state));
    ++finished;
  }
  std::atomic<int> finished = 0;
};

class IgnoredNews final : public MembershipListener {
  void OnWorkerLost(const WorkerRecord& /*worker*/, const absl::Status& /*why*/) override {}
  void OnWorkerReady(const WorkerRecord& /*worker*/) override {}
  void OnGpuProcessLost(const RankName& /*process*/, const absl::Status& /*why*/) override {}
};

std::shared_ptr<const TensorTable> Table() {
  TensorTable::Spec spec{
      .sources = {{*ParseMesh("copy=2 on a.0,b.0"), *ParseLayout("[-, -]")}},
      .destinations = {{*ParseMesh("replica=2 on c.0,d.0"), *ParseLayout("[-, -]")}},
      .groups = {{.shape = *Shape::Create(std::vector<int64_t>{16, 4}), .type = DataType::kF32}},
      .group_of_tensor = {0},
      .replica_axes = {"replica"}};
  return std::make_shared<const TensorTable>(*TensorTable::Create(std::move(spec)));
}

TEST(OperationRunnerThreadTest, EveryOperationEndsWhateverHappensAtOnce) {
  constexpr int kOperations = 200;
  constexpr uint64_t kSeed = 20;
  const RealClock clock;
  IgnoredNews news;
  WorkerRegistry registry({}, clock, news);
  for (const char* host : kHosts) {
    ASSERT_OK(registry
                  .Register({.name = absl::StrCat("w-", host),
                             .devices = {{host, 0}},
                             .gpus = {{{host, 0}, {absl::StrCat("GPU-", host), 1}}},
                             .execution_address = absl::StrCat("at-", host)})
                  .status());
  }
  DiligentWorkers gateway(clock);
  CountingSink sink;
  ThreadTaskQueue queue({.name = "operations"}, clock);
  ThreadTaskQueue planners({.name = "planner", .threads = 2}, clock);
  FakeCommunicatorGateway communicator_gateway;
  ControllerMetrics metrics;
  CommunicatorLeases communicators({.gateway = communicator_gateway,
                                    .workers = registry,
                                    .queue = queue,
                                    .clock = clock,
                                    .metrics = metrics,
                                    .bounds = {.gpu_bytes_max = 100, .expected_bytes = 40}});
  OperationRunner runner({.gateway = gateway,
                          .communicators = communicators,
                          .workers = registry,
                          .queue = queue,
                          .planners = planners,
                          .clock = clock,
                          .sink = sink,
                          .epoch = 1});
  ASSERT_OK_AND_ASSIGN(const auto planned, PlannedReshard::Create({.tensors = Table()}, {}, clock));
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < kOperations; ++i) {
    OperationRequest request{.id = absl::StrCat("op-", i)};
    if (random() % 2 == 0) {
      request.planned = planned;
    } else {
      request.plan = [&clock] { return PlannedReshard::Create({.tensors = Table()}, {}, clock); };
    }
    ASSERT_OK(runner.Start(std::move(request)));
    const std::string earlier = absl::StrCat("op-", random() % (i + 1));
    if (random() % 4 == 0) runner.Cancel(earlier, "at any moment");
    if (random() % 8 == 0) {
      runner.OnWorkerLost(absl::StrCat("w-", kHosts[random() % 4]), absl::UnavailableError("gone"));
    }
    runner.OnProgress({.worker = "w-c", .operation_id = earlier, .moved_bytes = 1});
    if (i % 50 == 49) {
      ASSERT_TRUE(runner.WaitUntilIdle(absl::Seconds(60)));
    }
  }
  EXPECT_EQ(sink.finished, kOperations);
  planners.Stop();
  gateway.Stop();
  queue.Stop();
}

}  // namespace
}  // namespace crossmesh
