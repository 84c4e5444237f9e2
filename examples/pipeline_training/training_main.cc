// One process of the training: a stage, computed where its worker is; or all of it, alone.

#include "common/mesh/mesh.h"
#include "examples/pipeline_training/stage_process.h"
#include "worker/worker.h"

#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <absl/strings/str_cat.h>

namespace crossmesh::training {
namespace {

struct Flags {
  bool alone = false;
  int stage = 0;
  int steps = 20;
  std::string controller;
  std::string checkpoints;
  int dies_after = -1;
};

void PrintLoss(int step, double loss) {
  std::printf("step %d loss %.9g\n", step, loss);
  std::fflush(stdout);
}

int TrainAloneAndPrint(int steps) {
  int step = 0;
  for (const double loss : TrainAlone(steps)) PrintLoss(step++, loss);
  return 0;
}

int Fail(const absl::Status& status) {
  std::cerr << "pipeline_training: " << status.message() << "\n";
  return 1;
}

// Trains until the run is done; one that was cut short goes on with the next program.
int TrainStage(const Flags& flags) {
  const std::string name = absl::StrCat("stage-", flags.stage);
  const int count = TrainingStage::ShapeOf(flags.stage).devices;
  const absl::StatusOr<std::vector<DeviceId>> devices =
      ParseDevices(absl::StrCat(name, ".0-", count - 1));
  if (!devices.ok()) return Fail(devices.status());
  const absl::StatusOr<std::unique_ptr<Worker>> worker =
      Worker::Create({.name = name,
                      .devices = *devices,
                      .controllers = {flags.controller},
                      .computes_pipelines = true});
  if (!worker.ok()) return Fail(worker.status());
  std::printf("ready\n");
  std::fflush(stdout);
  const auto on_step = [&flags](int step, double loss) {
    if (TrainingStage::ShapeOf(flags.stage).last) PrintLoss(step, loss);
    if (step == flags.dies_after) std::raise(SIGKILL);
  };
  StageProcess process(flags.stage, *devices,
                       {.on_step = on_step, .checkpoints = flags.checkpoints});
  for (;;) {
    const absl::StatusOr<std::unique_ptr<PipelineLoop>> loop = (*worker)->WaitForPipeline();
    if (!loop.ok()) return Fail(loop.status());
    const absl::Status why = process.Run(**loop);
    if (why.ok()) return 0;
    std::cerr << "pipeline_training: goes on after: " << why.message() << "\n";
  }
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Trains a stage of a small network in a pipeline, or all of it alone.",
               "pipeline_training");
  CLI::Option* const alone = app.add_flag("--alone", flags.alone, "All stages, in this process");
  app.add_option("--steps", flags.steps, "Of a training alone")->capture_default_str();
  app.add_option("--stage", flags.stage, "The stage that this process computes")
      ->check(CLI::Range(0, Model::kStages - 1))
      ->excludes(alone);
  app.add_option("--controller", flags.controller, "Address of the controller")->excludes(alone);
  app.add_option("--checkpoints", flags.checkpoints,
                 "An empty folder for the checkpoints of this run, the same for all stages")
      ->excludes(alone);
  app.add_option("--die-after", flags.dies_after,
                 "Kill this process after that step, before its checkpoint is written")
      ->excludes(alone);
  CLI11_PARSE(app, argc, argv);
  return flags.alone ? TrainAloneAndPrint(flags.steps) : TrainStage(flags);
}

}  // namespace
}  // namespace crossmesh::training

int main(int argc, char** argv) { return crossmesh::training::Main(argc, argv); }
