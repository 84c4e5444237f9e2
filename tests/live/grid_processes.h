// Processes of a training, the real programs, phase by phase.

#pragma once

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/mesh/mesh.h"
#include "common/testing/child_process.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "examples/tensor_parallel_training/state_memory.h"
#include "examples/tensor_parallel_training/testing/program_walk.h"
#include "examples/tensor_parallel_training/training_lead.h"
#include "examples/tensor_parallel_training/training_phase.h"
#include "planner/layers/planned_layers.h"
#include "planner/parallelism/programs/grid_program.h"
#include "tests/live/following.h"
#include "tests/live/live_cluster.h"
#include "tests/live/running_reshard.h"
#include "worker/memory/storage_table.h"
#include "worker/worker.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <gtest/gtest.h>

namespace crossmesh::grid_training {

inline constexpr int kProcesses = 8;
inline constexpr absl::Duration kLineMax = absl::Seconds(30);

using FollowedRun = Following<v1::PipelineRun>;

class GridProcessesTest : public ::testing::Test {
 protected:
  // Processes of some phases, with a controller; and a worker of this process, for states as they
  // are in the end.
  void Start(const TrainingSettings& settings, std::vector<std::string> phases) {
    settings_ = settings;
    phases_ = std::move(phases);
    devices_.clear();
    for (int process = 0; process < kProcesses; ++process) {
      devices_.push_back({.host = absl::StrCat("process-", process)});
    }
    ASSERT_OK_AND_ASSIGN(cluster_, LiveCluster::Start({.workers = {}}));
    for (int process = 0; process < kProcesses; ++process) {
      ASSERT_OK(StartProcess(process, flags_of_process_[process]));
    }
    ASSERT_OK_AND_ASSIGN(whole_, Worker::Create({.name = "whole",
                                                 .devices = {{.host = "whole"}},
                                                 .controllers = {cluster_->controller_address()}}));
    for (const DeviceId& device : devices_) {
      ASSERT_OK(cluster_->WaitForWorker(device.host, v1::WORKER_STATE_READY));
    }
    ASSERT_OK(cluster_->WaitForWorker("whole", v1::WORKER_STATE_READY));
  }

  // All processes and the controller are gone.
  void End() {
    children_.clear();
    logs_.clear();
    whole_.reset();
    cluster_.reset();
  }

  absl::Status StartProcess(int process, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"device",
                                          "--controller",
                                          cluster_->controller_address(),
                                          "--processes",
                                          absl::StrCat(kProcesses),
                                          "--number",
                                          absl::StrCat(process)};
    if (settings_.optimizer.is_adam) arguments.push_back("--adam");
    arguments.insert(arguments.end(), {"--layers", absl::StrCat(settings_.model.layers)});
    for (const std::string& phase : phases_) {
      arguments.insert(arguments.end(), {"--phase", phase});
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    // Each start has a log of its own.
    logs_[process].push_back(
        cluster_->PathOf(absl::StrCat("process-", process, ".", logs_[process].size())));
    ASSIGN_OR_RETURN(ChildProcess child,
                     ChildProcess::Start({.program = ProgramPath("tensor_parallel_training"),
                                          .arguments = std::move(arguments),
                                          .log_path = logs_[process].back()}));
    children_.erase(process);
    children_.emplace(process, std::move(child));
    return absl::OkStatus();
  }

  TrainingPhase PhaseOf(size_t phase) const { return *ParsePhase(phases_[phase]); }
  GridProgramRequest RequestOfPhase(size_t phase) const {
    return *RequestOf(PhaseOf(phase), settings_, devices_);
  }

  std::unique_ptr<FollowedRun> Begin(size_t phase, int64_t more_iterations = 0) {
    absl::StatusOr<v1::StartPipelineRequest> request =
        RunOf(PhaseOf(phase), settings_, devices_, PhaseOf(phase).steps + more_iterations);
    CHECK_OK(request);
    request->mutable_stall_limit()->set_seconds(1);
    return std::make_unique<FollowedRun>(
        [address = cluster_->controller_address(), request = *std::move(request)](
            FollowedRun::OnChange on_change) -> absl::StatusOr<v1::PipelineRun> {
          ASSIGN_OR_RETURN(Client client, Client::Connect(address, {}));
          return client.StartPipeline(request, on_change);
        });
  }

  // To the end; moves the state there first if the phase goes on with it.
  void Run(size_t phase) {
    if (PhaseOf(phase).goes_on && phase > 0) {
      ASSERT_OK(Move(SideOf(RequestOfPhase(phase - 1), settings_, StorageAfter(phase - 1)),
                     SideOf(RequestOfPhase(phase), settings_, StorageBefore(phase))));
    }
    Finish(phase, *Begin(phase));
  }
  // All phases, one after the other, with the losses of their steps.
  void RunAll(std::vector<double>& losses) {
    for (size_t phase = 0; phase < phases_.size(); ++phase) {
      ASSERT_NO_FATAL_FAILURE(Run(phase));
      const std::vector<double> more = LossesOf(phase);
      losses.insert(losses.end(), more.begin(), more.end());
    }
  }
  void Finish(size_t phase, FollowedRun& run) {
    ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, run.Result());
    ASSERT_EQ(done.state(), v1::PIPELINE_RUN_STATE_DONE) << done.error();
    for (int64_t process = 0; process < PhaseOf(phase).devices(); ++process) {
      ASSERT_TRUE(WaitUntil(kLineMax, [&] { return Says(process, Ended(phase)); })) << process;
    }
  }

  absl::Status Move(const v1::ReshardSide& from, const v1::ReshardSide& to) {
    ASSIGN_OR_RETURN(const v1::ReshardSpec spec, MoveOf(settings_, from, to));
    ASSIGN_OR_RETURN(const v1::Operation operation, Execute(cluster_->controller_address(), spec));
    if (operation.state() == v1::OPERATION_STATE_COMMITTED) return absl::OkStatus();
    return absl::InternalError(operation.error());
  }

  static std::string Ended(size_t phase) { return absl::StrCat("phase ", phase, " ended"); }
  std::vector<std::string> Lines(int process) const {
    std::string text;
    for (const std::string& log : logs_.at(process)) absl::StrAppend(&text, ReadTextFile(log));
    return absl::StrSplit(text, '\n');
  }
  bool Says(int process, const std::string& line) const {
    const std::vector<std::string> lines = Lines(process);
    return std::ranges::find(lines, line) != lines.end();
  }

  // By step of the phase: the parts of all devices, in their order. One that was done again must
  // have had the same part.
  std::vector<double> LossesOf(size_t phase) const {
    std::map<int64_t, double> losses;
    for (int process = 0; process < PhaseOf(phase).devices(); ++process) {
      std::map<int64_t, double> parts;
      for (const std::string& line : Lines(process)) {
        const std::vector<std::string> words = absl::StrSplit(line, ' ');
        if (!absl::StartsWith(line, absl::StrCat("phase ", phase, " step "))) continue;
        int64_t step = 0;
        double part = 0;
        CHECK(absl::SimpleAtoi(words[3], &step) && absl::SimpleAtod(words[5], &part)) << line;
        EXPECT_EQ(parts.try_emplace(step, part).first->second, part) << process << ": " << line;
      }
      for (const auto& [step, part] : parts) losses[step] += part;
    }
    std::vector<double> all;
    for (const auto& [step, loss] : losses) all.push_back(loss);
    return all;
  }

  // As the controller does, which knows nothing of the network.
  std::shared_ptr<const PlannedLayers> PlannedOf(size_t phase) const {
    auto planned = PlanLayers(*MakeGridProgram(RequestOfPhase(phase)), Topology());
    CHECK_OK(planned);
    return *std::move(planned);
  }
  ProgramWalk WalkOf(size_t phase) const {
    absl::StatusOr<ProgramWalk> walk =
        ProgramWalk::Create(RequestOfPhase(phase), settings_.optimizer);
    CHECK_OK(walk);
    walk->FollowPlans(PlannedOf(phase));
    return *std::move(walk);
  }

  // As it is after a phase, put together by a reshard to a device of this process.
  Tensors StateAfter(size_t phase) {
    const std::vector<DeviceId> device = {{.host = "whole"}};
    const v1::ReshardSide side =
        SideOf(*RequestOf(*ParsePhase("c=1"), settings_, device), settings_, StorageAfter(phase));
    Tensors state = InitialState(settings_);
    EXPECT_OK(Move(SideOf(RequestOfPhase(phase), settings_, StorageAfter(phase)), side));
    const absl::StatusOr<StorageTable::Opened> storage =
        whole_->storages().Open({StorageAfter(phase), device[0]});
    EXPECT_OK(storage);
    const absl::StatusOr<StateMemory> memory = StateMemory::Create(side, settings_, device[0]);
    EXPECT_OK(memory);
    if (storage.ok() && memory.ok()) memory->Read(storage->arena->bytes(), state);
    return state;
  }

  TrainingSettings settings_;
  std::vector<std::string> phases_;
  std::vector<DeviceId> devices_;
  std::map<int, std::vector<std::string>> flags_of_process_;
  std::unique_ptr<LiveCluster> cluster_;
  std::unique_ptr<Worker> whole_;
  std::map<int, ChildProcess> children_;
  std::map<int, std::vector<std::string>> logs_;
};

}  // namespace crossmesh::grid_training
