// Operations with real threads: calls answered, cancelled and lost at any moment.

#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/testing/status_matchers.h"
#include "common/wire/worker_part_codec.h"
#include "controller/dispatch/planned_reshard.h"
#include "controller/dispatch/running_operation.h"
#include "controller/dispatch/running_table.h"
#include "controller/dispatch/start_gate.h"
#include "controller/dispatch/testing/dispatch_fixture.h"
#include "controller/dispatch/thread_planning_queue.h"
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
class DiligentWorkers final : public TaskGateway {
 public:
  explicit DiligentWorkers(const Clock& clock) {
    for (const char* host : kHosts) {
      threads_[absl::StrCat("at-", host)] =
          std::make_unique<ThreadTaskQueue>(ThreadTaskQueue::Options{.name = host}, clock);
    }
  }

  std::unique_ptr<WorkerCall<v1::ExecuteRequest>> Open(
      WorkerCallStart<v1::ExecuteRequest> start,
      WorkerCallListener<v1::ExecuteResponse> listener) override {
    {
      const MutexLock lock(mutex_);
      ++calls_;
    }
    TaskQueue& thread = *threads_.at(start.address);
    thread.Post([body = start.body, listener] {
      v1::ExecuteResponse accepted;
      accepted.mutable_accepted();
      listener.on_message(accepted);
      v1::WorkerPart message;
      CHECK(message.ParseFromString(body()));
      const absl::StatusOr<WorkerPart> part = FromProto(message);
      CHECK_OK(part);
      for (const DeviceRank device : part->spec().devices) {
        if (part->tensors().replica_of(device) < 0) continue;
        v1::ExecuteResponse done;
        done.mutable_device_done()->set_device(device);
        listener.on_message(done);
      }
      v1::ExecuteResponse report;
      report.mutable_report();
      listener.on_message(report);
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
  class Call final : public WorkerCall<v1::ExecuteRequest> {
   public:
    Call(DiligentWorkers& workers, TaskQueue& thread,
         WorkerCallListener<v1::ExecuteResponse> listener)
        : workers_(workers), thread_(thread), listener_(std::move(listener)) {}
    ~Call() override { End(); }
    void Send(v1::ExecuteRequest request) override {
      v1::ExecuteResponse answer;
      if (request.has_cancel()) {
        answer.mutable_report()->set_code(static_cast<int>(absl::StatusCode::kCancelled));
        answer.mutable_report()->set_message(request.cancel().reason());
      } else if (request.has_resolve()) {
        *answer.mutable_resolved()->mutable_devices() = request.resolve().devices();
      } else {
        return;
      }
      thread_.Post([listener = listener_, answer] { listener.on_message(answer); });
    }
    void SendLast(v1::ExecuteRequest /*request*/) override { End(); }
    void Cancel() override { End(); }

   private:
    void End() {
      if (std::exchange(ended_, true)) return;
      thread_.Post([&workers = workers_, listener = listener_] {
        listener.on_end(absl::OkStatus());
        workers.OnCallEnded();
      });
    }

    bool ended_ = false;
    DiligentWorkers& workers_;
    TaskQueue& thread_;
    const WorkerCallListener<v1::ExecuteResponse> listener_;
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

class CountingSink final : public JobSink<v1::Operation> {
 public:
  void Commit(std::shared_ptr<const v1::Operation> /*operation*/, std::string /*resumption*/,
              Done done) override {
    done(absl::OkStatus());
  }
  void RecordProgress(const std::string& /*id*/, std::string /*progress*/, Done done) override {
    done(absl::OkStatus());
  }
  void OnChange(std::shared_ptr<const v1::Operation> /*operation*/) override {}
  void Finish(std::shared_ptr<const v1::Operation> /*operation*/, Done done) override {
    ++finished;
    done(absl::OkStatus());
  }
  std::atomic<int> finished = 0;
};

TEST(RunningOperationThreadTest, EveryOperationEndsWhateverHappensAtOnce) {
  constexpr int kOperations = 200;
  constexpr uint64_t kSeed = 20;
  const RealClock clock;
  NoNews news;
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
  ControllerMetrics metrics;
  ThreadPlanningQueue planners(2, clock, metrics);
  StartGate gate(queue);
  FakeCommunicatorGateway communicator_gateway;
  CommunicatorLeases communicators({.gateway = communicator_gateway,
                                    .workers = registry,
                                    .queue = queue,
                                    .clock = clock,
                                    .metrics = metrics,
                                    .bounds = {.gpu_bytes_max = 100, .expected_bytes = 40}});
  RunningTable<RunningOperation> running({.gateway = gateway,
                                          .communicators = communicators,
                                          .workers = registry,
                                          .queue = queue,
                                          .planners = planners,
                                          .gate = gate,
                                          .clock = clock,
                                          .sink = sink,
                                          .metrics = metrics,
                                          .epoch = 1});
  ASSERT_OK_AND_ASSIGN(const auto planned,
                       PlannedReshard::Create({.tensors = SampleTable().Make()}, {}, clock));
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < kOperations; ++i) {
    OperationRequest request;
    request.shown.set_id(absl::StrCat("op-", i));
    if (random() % 2 == 0) {
      request.planned = planned;
    } else {
      request.plan = [&clock](auto done) {
        done(PlannedReshard::Create({.tensors = SampleTable().Make()}, {}, clock));
      };
    }
    ASSERT_OK(running.Start(std::move(request)));
    const std::string earlier = absl::StrCat("op-", random() % (i + 1));
    if (random() % 4 == 0) {
      running.With(earlier, [](RunningOperation& operation) { operation.Cancel("at any moment"); });
    }
    if (random() % 8 == 0) {
      running.WithAll(
          [lost = absl::StrCat("w-", kHosts[random() % 4])](RunningOperation& operation) {
            operation.WorkerIsLost(lost, absl::UnavailableError("gone"));
          });
    }
    running.With(earlier, [](RunningOperation& operation) { operation.Progress("w-c", 1, 1); });
    if (i % 50 == 49) {
      ASSERT_TRUE(running.WaitUntilIdle(absl::Seconds(60)));
    }
  }
  EXPECT_EQ(sink.finished, kOperations);
  planners.Stop();
  gateway.Stop();
  queue.Stop();
}

}  // namespace
}  // namespace crossmesh
