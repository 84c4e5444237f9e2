// One process of the training: a device of a grid, computed where its worker is; all of it, alone;
// or the one that asks the controller for what is next.

#include "client/client.h"
#include "client/outcome.h"
#include "common/base/status_macros.h"
#include "common/mesh/mesh.h"
#include "examples/pipeline_training/checkpoint_files.h"
#include "examples/pipeline_training/checkpoints.h"
#include "examples/tensor_parallel_training/grid_process.h"
#include "examples/tensor_parallel_training/model.h"
#include "examples/tensor_parallel_training/small_training.h"
#include "examples/tensor_parallel_training/state_memory.h"
#include "examples/tensor_parallel_training/training_lead.h"
#include "examples/tensor_parallel_training/training_phase.h"
#include "worker/memory/storage_table.h"
#include "worker/worker.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh::grid_training {
namespace {

struct Flags {
  int steps = 20;
  bool adam = false;
  int64_t layers = 2;
  std::string controller;
  int64_t processes = 8;
  std::vector<std::string> phases;
  size_t number = 0;  // of a process, or of a phase
  size_t first_phase = 0;
  int64_t memory_max = 0;
  std::string checkpoints, resume;
  std::string killed_at, stopped_at;  // "3 m0.layer0.qkv.forward"
  int64_t more = 0;
};

void Say(const std::string& line) { std::cout << line << std::endl; }

// Every digit of it.
std::string LossText(int64_t step, double loss) {
  return absl::StrFormat("step %d loss %.17g", step, loss);
}

// All that the flags say of a training.
struct TrainingPlan {
  static absl::StatusOr<TrainingPlan> Of(const Flags& flags) {
    TrainingPlan plan{.settings = flags.adam ? SmallAdamTraining(flags.layers)
                                             : SmallTraining(flags.layers)};
    for (const std::string& text : flags.phases) {
      ASSIGN_OR_RETURN(TrainingPhase phase, ParsePhase(text));
      plan.phases.push_back(std::move(phase));
    }
    if (!flags.resume.empty()) {
      ASSIGN_OR_RETURN(plan.resumed,
                       training::Checkpoints::OpenNewest(flags.resume, kCheckpointStage));
    }
    for (int64_t process = 0; process < flags.processes; ++process) {
      plan.devices.push_back({.host = absl::StrCat("process-", process)});
    }
    return plan;
  }
  // Steps that are done when a phase begins.
  int64_t StepsBefore(size_t phase) const {
    int64_t steps = 0;
    for (; phase > 0 && phases[phase].goes_on; --phase) steps += phases[phase - 1].steps;
    return phase == 0 && resumed.has_value() ? steps + resumed->steps() : steps;
  }
  absl::StatusOr<v1::ReshardSide> Side(size_t phase, const std::string& storage) const {
    ASSIGN_OR_RETURN(const GridProgramRequest request, RequestOf(phases[phase], settings, devices));
    return SideOf(request, settings, storage);
  }

  TrainingSettings settings;
  std::vector<TrainingPhase> phases = {};
  std::vector<DeviceId> devices = {};
  std::optional<training::CheckpointFiles> resumed = {};  // what the first phase goes on from
};

absl::Status TrainAloneAndSay(const Flags& flags, const TrainingPlan& plan) {
  const std::vector<double> losses = TrainAlone<float>(plan.settings, flags.steps);
  const std::vector<double> exact = TrainAlone<double>(plan.settings, flags.steps);
  for (int step = 0; step < flags.steps; ++step) {
    Say(absl::StrFormat("%s exact %.17g", LossText(step, losses[step]), exact[step]));
  }
  return absl::OkStatus();
}

// A process that computes one device, phase by phase.
class DeviceProgram {
 public:
  DeviceProgram(const Flags& flags, const TrainingPlan& plan, Worker& worker)
      : flags_(flags), plan_(plan), worker_(worker) {}

  absl::Status Train(size_t phase) {
    ASSIGN_OR_RETURN(const std::optional<PhaseOfDevice> here,
                     PhaseOn(plan_.phases[phase], plan_.settings, plan_.devices, device()));
    if (!here.has_value()) return absl::OkStatus();
    GridProcess process(*here, plan_.settings, OptionsOf(phase));
    ASSIGN_OR_RETURN(std::unique_ptr<PipelineLoop> loop, worker_.WaitForPipeline());
    if (plan_.phases[phase].goes_on && !is_replaced(phase)) {
      RETURN_IF_ERROR(GoOn(phase, process));
    }
    for (;;) {
      const absl::Status why = process.Run(*loop);
      if (why.ok()) break;
      std::cerr << "tensor_parallel_training: goes on after: " << why.message() << "\n";
      // It has the memory of its messages as long as it lives.
      loop.reset();
      ASSIGN_OR_RETURN(loop, worker_.WaitForPipeline());
    }
    const std::vector<std::byte> state = process.State();
    ASSIGN_OR_RETURN(const StorageTable::Opened kept,
                     worker_.storages().Create({StorageAfter(phase), device()}, state.size()));
    std::ranges::copy(state, kept.arena->bytes().begin());
    Say(absl::StrCat("phase ", phase, " ended"));
    return absl::OkStatus();
  }

 private:
  const DeviceId& device() const { return plan_.devices[flags_.number]; }
  // From the phase before, or from what is resumed.
  absl::Status GoOn(size_t phase, GridProcess& process) const {
    if (phase == 0) return process.SetState(*plan_.resumed);
    ASSIGN_OR_RETURN(const StorageTable::Opened state,
                     worker_.storages().Open({StorageBefore(phase), device()}));
    return process.SetState(state.arena->bytes(), plan_.StepsBefore(phase));
  }
  // It takes the place of another process, in the middle of the phase.
  bool is_replaced(size_t phase) const { return phase > 0 && phase == flags_.first_phase; }

  GridProcess::Options OptionsOf(size_t phase) const {
    GridProcess::Options options;
    options.on_op = [this](int64_t step, const std::string& op) { DieOrStop(step, op); };
    options.on_step = [this, phase](int64_t step, double loss) {
      Say(absl::StrCat("phase ", phase, " ", LossText(step, loss)));
      DieOrStop(step, "complete");
    };
    if (!flags_.checkpoints.empty()) {
      options.checkpoints = absl::StrCat(flags_.checkpoints, "/phase-", phase, "/", device().host);
      std::error_code ignored;
      std::filesystem::create_directories(options.checkpoints, ignored);
    }
    return options;
  }

  void DieOrStop(int64_t step, const std::string& where) const {
    const std::string place = absl::StrCat(step, " ", where);
    if (place == flags_.killed_at) std::raise(SIGKILL);
    if (place == flags_.stopped_at && !std::exchange(was_stopped_, true)) std::raise(SIGSTOP);
  }

  const Flags& flags_;
  const TrainingPlan& plan_;
  Worker& worker_;
  mutable bool was_stopped_ = false;
};

absl::Status TrainDevice(const Flags& flags, const TrainingPlan& plan) {
  if (flags.number >= plan.devices.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a number below ", plan.devices.size(), ", found ", flags.number));
  }
  if (!plan.phases.empty() && plan.phases[0].goes_on != plan.resumed.has_value()) {
    return absl::InvalidArgumentError(
        "expected --resume with a first phase that goes_on, found one of them");
  }
  const DeviceId& device = plan.devices[flags.number];
  ASSIGN_OR_RETURN(const std::unique_ptr<Worker> worker,
                   Worker::Create({.name = device.host,
                                   .devices = {device},
                                   .controllers = {flags.controller},
                                   .memory_max = flags.memory_max,
                                   .computes_pipelines = true}));
  Say("ready");
  DeviceProgram program(flags, plan, *worker);
  for (size_t phase = flags.first_phase; phase < plan.phases.size(); ++phase) {
    RETURN_IF_ERROR(program.Train(phase));
  }
  // Its memory has the state until somebody ends it.
  return worker->WaitForPipeline().status();
}

absl::Status CheckPhase(const Flags& flags, const TrainingPlan& plan) {
  if (flags.number < plan.phases.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("expected one of ", plan.phases.size(), " phases, found ", flags.number));
}

absl::Status RunPhase(const Flags& flags, const TrainingPlan& plan) {
  RETURN_IF_ERROR(CheckPhase(flags, plan));
  ASSIGN_OR_RETURN(Client client, Client::Connect(flags.controller, {}));
  const TrainingPhase& phase = plan.phases[flags.number];
  ASSIGN_OR_RETURN(const v1::StartPipelineRequest request,
                   RunOf(phase, plan.settings, plan.devices, phase.steps + flags.more));
  ASSIGN_OR_RETURN(const v1::PipelineRun run,
                   client.StartPipeline(request, [](const v1::PipelineRun&) {}));
  return OutcomeOf(run);
}

// From the phase before.
absl::Status MoveState(const Flags& flags, const TrainingPlan& plan) {
  RETURN_IF_ERROR(CheckPhase(flags, plan));
  if (flags.number == 0) return absl::InvalidArgumentError("expected a phase after another one");
  ASSIGN_OR_RETURN(const v1::ReshardSide from,
                   plan.Side(flags.number - 1, StorageAfter(flags.number - 1)));
  ASSIGN_OR_RETURN(const v1::ReshardSide to, plan.Side(flags.number, StorageBefore(flags.number)));
  v1::ExecuteReshardRequest request;
  ASSIGN_OR_RETURN(*request.mutable_spec(), MoveOf(plan.settings, from, to));
  request.set_request_id(NewRequestId());
  ASSIGN_OR_RETURN(Client client, Client::Connect(flags.controller, {}));
  ASSIGN_OR_RETURN(const v1::Operation operation,
                   client.Execute(request, [](const v1::Operation&) {}));
  return OutcomeOf(operation);
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Trains a small transformer on grids of processes, or alone.",
               "tensor_parallel_training");
  app.require_subcommand(1);
  app.fallthrough();
  app.add_flag("--adam", flags.adam, "In the place of gradient descent");
  app.add_option("--layers", flags.layers, "Of the model")->check(CLI::Range(1, 1024));
  app.add_option("--phase", flags.phases, "Grids and steps, one after the other (README.md)");
  app.add_option("--processes", flags.processes, "Of all phases")->capture_default_str();
  app.add_option("--controller", flags.controller, "Address of the controller");
  app.add_option("--number", flags.number, "Of this process, or of the phase");
  CLI::App* const alone =
      app.add_subcommand("alone", "In this process, in float and in double precision");
  alone->add_option("--steps", flags.steps)->capture_default_str();
  CLI::App* const device = app.add_subcommand("device", "A process of the training");
  device->add_option("--first-phase", flags.first_phase,
                     "Takes the place of a process that was lost in that phase");
  device->add_option("--memory-max", flags.memory_max,
                     "Bytes that messages and states may take; 0: as many as the machine has");
  device->add_option("--checkpoints", flags.checkpoints,
                     "A folder that all processes share: they write phase-0/process-3 and so on");
  device->add_option("--resume", flags.resume,
                     "The folder phase-N of a training, on any grid, which the first phase goes on "
                     "from");
  device->add_option("--kill-at", flags.killed_at,
                     "Step, and op before which it kills itself; or \"complete\"");
  device->add_option("--stop-at", flags.stopped_at, "Likewise: stops, until it gets SIGCONT");
  CLI::App* const run = app.add_subcommand("run", "Has a phase run, and waits for its end");
  run->add_option("--more", flags.more, "Iterations beside those of its steps");
  app.add_subcommand("move", "Moves the state to a phase from the one before it");
  CLI11_PARSE(app, argc, argv);
  const absl::StatusOr<TrainingPlan> plan = TrainingPlan::Of(flags);
  absl::Status status = plan.status();
  if (status.ok()) {
    status = alone->parsed()    ? TrainAloneAndSay(flags, *plan)
             : device->parsed() ? TrainDevice(flags, *plan)
             : run->parsed()    ? RunPhase(flags, *plan)
                                : MoveState(flags, *plan);
  }
  if (status.ok()) return 0;
  std::cerr << "tensor_parallel_training: " << status.message() << "\n";
  return 1;
}

}  // namespace
}  // namespace crossmesh::grid_training

int main(int argc, char** argv) { return crossmesh::grid_training::Main(argc, argv); }
