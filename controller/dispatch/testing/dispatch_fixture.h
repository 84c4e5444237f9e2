#pragma once

#include "common/base/fake_clock.h"
#include "common/mesh/mesh.h"
#include "common/metrics/controller_metrics.h"
#include "common/plan/tensor_table.h"
#include "common/wire/session_protocol.h"
#include "controller/dispatch/communicator_leases.h"
#include "controller/dispatch/job_sink.h"
#include "controller/dispatch/start_gate.h"
#include "controller/dispatch/testing/fake_communicator_gateway.h"
#include "controller/dispatch/testing/manual_planning_queue.h"
#include "controller/dispatch/testing/manual_task_queue.h"
#include "controller/membership/worker_registry.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {

// Membership whose news no test needs.
class NoNews : public MembershipListener {
 public:
  void OnWorkerLost(const WorkerRecord& /*worker*/, const absl::Status& /*why*/) override {}
  void OnWorkerReady(const WorkerRecord& /*worker*/) override {}
  void OnGpuProcessLost(const RankName& /*process*/, const absl::Status& /*why*/) override {}
};

// What the sink was told, by run.
template <typename Subject>
class FakeSink final : public JobSink<Subject> {
 public:
  using typename JobSink<Subject>::Done;
  void Commit(std::shared_ptr<const Subject> run, std::string resumption, Done done) override {
    ++(resumption.empty() ? acceptances : intents);
    if (run->revision() >= latest[run->id()].revision()) latest[run->id()] = *run;
    resumptions[run->id()] = std::move(resumption);
    if (hold_commits) {
      commits.push_back(std::move(done));
    } else {
      done(intent_result);
    }
  }
  void RecordProgress(const std::string& id, std::string bytes, Done done) override {
    EXPECT_FALSE(latest.at(id).has_end_time());
    if (progress_result.ok()) progress[id] = std::move(bytes);
    if (hold_progress) {
      held_progress.push_back(std::move(done));
    } else {
      done(progress_result);
    }
  }
  void OnChange(std::shared_ptr<const Subject> run) override {
    Subject& known = latest[run->id()];
    EXPECT_GT(run->revision(), known.revision());
    EXPECT_FALSE(known.has_end_time()) << "ended twice";
    if constexpr (requires { run->has_report(); }) {
      EXPECT_EQ(run->has_end_time(), run->has_report());
    }
    known = *run;
  }
  void Finish(std::shared_ptr<const Subject> run, Done done) override {
    OnChange(run);
    if (hold_ends) {
      ends.push_back(std::move(done));
    } else {
      done(absl::OkStatus());
    }
  }

  absl::Status intent_result;
  absl::Status progress_result;
  bool hold_progress = false;  // it waits for the test to record it
  std::vector<Done> held_progress;
  std::map<std::string, std::string> progress;  // that is on record
  int acceptances = 0;                          // commits before there was anything to resume
  int intents = 0;
  std::map<std::string, std::string> resumptions;  // of the latest intents
  // What is to be recorded waits for the test.
  bool hold_commits = false;
  bool hold_ends = false;
  std::vector<Done> commits;
  std::vector<Done> ends;
  std::map<std::string, Subject> latest;
};

// A tensor of 16 rows, from one placement to another, whose axis "replica" counts replicas.
struct SampleTable {
  const char* source_mesh = "copy=2 on a.0,b.0";
  const char* source_layout = "[-, -]";
  const char* destination_mesh = "replica=2 on c.0,d.0";
  const char* destination_layout = "[-, -]";

  std::shared_ptr<const TensorTable> Make() const {
    TensorTable::Spec spec{
        .sources = {{*ParseMesh(source_mesh), *ParseLayout(source_layout)}},
        .destinations = {{*ParseMesh(destination_mesh), *ParseLayout(destination_layout)}},
        .groups = {{.shape = *Shape::Create(std::vector<int64_t>{16, 4}), .type = DataType::kF32}},
        .group_of_tensor = {0},
        .replica_axes = {"replica"}};
    return std::make_shared<const TensorTable>(*TensorTable::Create(std::move(spec)));
  }
};

// Workers w-HOST at at-HOST, which own HOST.0; communicators that need a gateway's word only; and
// queues that run when a test says so, by its clock. Of membership, only the communicators hear of
// GPUs' processes; all else a test tells itself.
class DispatchFixture : public ::testing::Test, public NoNews {
 protected:
  // Another session of the host's worker. With a GPU process its device is a GPU; 0: none drives
  // it.
  void Join(const std::string& host, uint64_t incarnation = 1,
            std::optional<uint64_t> gpu_process = std::nullopt) {
    WorkerRecord record{.name = absl::StrCat("w-", host),
                        .incarnation = incarnation,
                        .devices = {{host, 0}},
                        .execution_address = absl::StrCat("at-", host),
                        .data_address = absl::StrCat("data-", host, incarnation),
                        .version = "7.8.9",
                        .protocol = protocol_};
    if (gpu_process.has_value()) {
      record.gpus = {{{host, 0}, {absl::StrCat("GPU-", host), *gpu_process}}};
    }
    sessions_[host] = *registry_.Register(std::move(record));
    Run();
  }
  void JoinGpu(const std::string& host, uint64_t process) { Join(host, 1, process); }
  void EndSession(const std::string& host) {
    registry_.SessionEnded(absl::StrCat("w-", host), sessions_[host], /*left=*/false);
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

  // MembershipListener
  void OnGpuProcessLost(const RankName& process, const absl::Status& why) override {
    communicators_.OnProcessLost(process, why);
  }

  FakeClock clock_;
  ManualTaskQueue queue_{clock_};
  ManualPlanningQueue planners_;
  StartGate gate_{queue_};
  WorkerRegistry registry_{{}, clock_, *this};
  std::map<std::string, uint64_t> sessions_;     // the latest, by host
  int32_t protocol_ = kSessionProtocols.newest;  // of workers that join
  FakeCommunicatorGateway communicator_gateway_;
  ControllerMetrics metrics_;
  // Room for two communicators on a GPU.
  CommunicatorLeases communicators_{{.gateway = communicator_gateway_,
                                     .workers = registry_,
                                     .queue = queue_,
                                     .clock = clock_,
                                     .metrics = metrics_,
                                     .bounds = {.gpu_bytes_max = 100, .expected_bytes = 40}}};
};

}  // namespace crossmesh
