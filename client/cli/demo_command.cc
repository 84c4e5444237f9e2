#include "client/cli/cli.h"
#include "client/cli/demo_cluster.h"
#include "client/cli/demo_run.h"
#include "client/cli/demo_specs.h"
#include "client/cli/demo_values.h"
#include "client/cli/gpu_list.h"
#include "client/cli/interrupts.h"
#include "client/cli/plan_report.h"
#include "client/cli/tensor_flags.h"
#include "client/pause.h"
#include "client/safetensors/collection.h"
#include "common/base/byte_count.h"
#include "common/base/format.h"
#include "common/base/status_macros.h"
#include "common/base/table.h"
#include "common/mesh/mesh.h"
#include "common/reshard/reshard_tensors.h"
#include "common/wire/tensor_codec.h"
#include "planner/reshard/strategy.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

namespace fs = std::filesystem;

constexpr int kReplicas = 2;
constexpr int kWorkersMax = 64;

struct DemoFlags {
  std::string tensors;  // safetensors; empty: generated values
  std::vector<std::string> strategies;
  std::string source_rules;
  std::string destination_rules;
  std::string output;
  std::string verify = "on";
  std::string devices = "host";
  std::vector<std::string> gpus;
  std::vector<std::string> worker_flags;
  int workers = 4;
  bool keep = false;
};

// What the demo does, with all that it takes.
struct DemoTask {
  std::unique_ptr<DemoValues> values;
  DemoSpecs specs;
  std::unique_ptr<const TensorTable> tensors;
  std::string source_text;
  std::string destination_text;
};

// Files that come with the program lie in share/crossmesh beside its folder.
std::string SharedFile(const std::string& name) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return (program.parent_path().parent_path() / "share" / "crossmesh" / name).string();
}

absl::StatusOr<std::unique_ptr<DemoValues>> ValuesOf(const DemoFlags& flags) {
  if (flags.tensors.empty()) {
    ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(SharedFile("gpt2.json")));
    return std::make_unique<GeneratedValues>(std::move(manifest));
  }
  ASSIGN_OR_RETURN(SafetensorsCollection files, SafetensorsCollection::Open(flags.tensors));
  return std::make_unique<FileValues>(std::move(files));
}

// One for each worker, or none: tensors lie in host memory.
absl::StatusOr<std::vector<std::string>> GpusOf(const DemoFlags& flags) {
  if (flags.devices == "host") return std::vector<std::string>();
  std::vector<std::string> gpus = flags.gpus.empty() ? ListGpus() : flags.gpus;
  if (std::ssize(gpus) < flags.workers) {
    return absl::FailedPreconditionError(
        absl::StrCat("--devices gpu: expected a GPU for each of ", flags.workers,
                     " workers, found ", gpus.size(), ": see nvidia-smi -L, and --workers"));
  }
  gpus.resize(flags.workers);
  return gpus;
}

absl::StatusOr<std::string> MeshText(const v1::ReshardSide& side) {
  ASSIGN_OR_RETURN(const Mesh mesh, FromProto(side.inline_mesh()));
  return ToString(mesh);
}

absl::StatusOr<DemoTask> TaskOf(const DemoFlags& flags) {
  if (flags.workers < kReplicas || flags.workers > kWorkersMax || flags.workers % kReplicas != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--workers: expected an even number from ",
                                                   kReplicas, " to ", kWorkersMax, ", found ",
                                                   flags.workers));
  }
  std::vector<DeviceId> devices;
  for (int i = 0; i < flags.workers; ++i) devices.push_back({.host = absl::StrCat("node-", i)});
  ASSIGN_OR_RETURN(const Mesh source, Mesh::Create({{"fsdp", flags.workers}}, devices));
  ASSIGN_OR_RETURN(
      const Mesh destination,
      Mesh::Create({{"replica", kReplicas}, {"model", flags.workers / kReplicas}}, devices));
  DemoTask task;
  ASSIGN_OR_RETURN(task.values, ValuesOf(flags));
  DemoSides sides = {
      .manifest = ToProto(task.values->manifest()), .source = source, .destination = destination};
  ASSIGN_OR_RETURN(const auto source_lines, ReadRules(flags.source_rules));
  sides.source_rules.Assign(source_lines.begin(), source_lines.end());
  ASSIGN_OR_RETURN(const auto destination_lines, ReadRules(flags.destination_rules));
  sides.destination_rules.Assign(destination_lines.begin(), destination_lines.end());
  ASSIGN_OR_RETURN(const LayoutRules source_rules, FromProto(sides.source_rules));
  ASSIGN_OR_RETURN(const LayoutRules destination_rules, FromProto(sides.destination_rules));
  ASSIGN_OR_RETURN(TensorTable tensors,
                   BuildReshardTensors(task.values->manifest(), {source, source_rules},
                                       {destination, destination_rules}, {"replica"}));
  task.tensors = std::make_unique<const TensorTable>(std::move(tensors));
  const bool on_gpus = flags.devices == "gpu";
  if (on_gpus) {
    const Manifest received = ReceivedManifest(task.values->manifest(), *task.tensors);
    sides.received = ToProto(received);
    sides.received_rules = ReceivedRules(sides.destination_rules, received, *task.tensors);
  }
  ASSIGN_OR_RETURN(task.specs, MakeDemoSpecs(sides, on_gpus));
  ASSIGN_OR_RETURN(task.source_text, MeshText(task.specs.move.source()));
  ASSIGN_OR_RETURN(task.destination_text, MeshText(task.specs.move.destination()));
  return task;
}

absl::StatusOr<std::vector<std::string>> StrategiesOf(const DemoFlags& flags) {
  std::vector<std::string> names = flags.strategies;
  for (const std::string& name : names) RETURN_IF_ERROR(ParseStrategy(name).status());
  if (!names.empty()) return names;
  for (const Strategy strategy : kAllStrategies) names.emplace_back(StrategyName(strategy));
  return names;
}

std::string Table(const std::vector<DemoResult>& results) {
  using Align = TextTable::Align;
  TextTable table({{"STRATEGY"},
                   {"TIME", Align::kRight},
                   {"THROUGHPUT", Align::kRight},
                   {"BUSIEST HOST", Align::kRight},
                   {"NETWORK", Align::kRight},
                   {"BOUND", Align::kRight},
                   {"TIME/BOUND", Align::kRight}});
  for (const DemoResult& result : results) {
    const v1::OperationReport& report = result.report;
    table.AddRow({result.plan.strategy(), FormatSeconds(report.transfer_seconds()),
                  FormatRate(report.throughput_bytes_per_second()),
                  FormatBytes(ByteCount(report.busiest_host_bytes())),
                  FormatBytes(ByteCount(report.network_bytes())),
                  FormatSeconds(report.bound_seconds()),
                  RatioToBound(report.transfer_seconds(), report.bound_seconds())});
  }
  return table.ToString();
}

std::string Closing(const std::vector<DemoResult>& results, bool verified) {
  if (results.empty()) return "";
  const v1::PlanSummary& plan = results.front().plan;
  return absl::StrCat(
      "\nOne run each, after a warm-up that is not counted; on a busy machine times vary.\n"
      "Throughput counts destination bytes; busiest host and bound count each worker as a host "
      "of its own.\n",
      RatesNote(plan),
      verified ? absl::StrCat("Every element of all ", plan.replicas(),
                              " replicas is as it should be.\n")
               : "Elements were not compared (--verify off).\n");
}

// Where a cluster that stays is reached.
nlohmann::json Addresses(const DemoCluster& cluster) {
  nlohmann::json workers = nlohmann::json::array();
  for (const DemoCluster::Worker& worker : cluster.workers()) {
    workers.push_back({{"name", worker.name},
                       {"memory_socket", worker.memory_socket},
                       {"metrics_address", worker.metrics_address}});
  }
  return {{"controller_address", cluster.controller_address()},
          {"controller_metrics_address", cluster.controller_metrics_address()},
          {"workers", workers}};
}

nlohmann::json Document(const DemoTask& task, const std::vector<DemoResult>& results,
                        bool verified) {
  nlohmann::json strategies = nlohmann::json::array();
  for (const DemoResult& result : results) {
    const v1::OperationReport& report = result.report;
    strategies.push_back({{"strategy", result.plan.strategy()},
                          {"transfer_seconds", report.transfer_seconds()},
                          {"throughput_bytes_per_second", report.throughput_bytes_per_second()},
                          {"destination_bytes", report.destination_bytes()},
                          {"network_bytes", report.network_bytes()},
                          {"busiest_host_bytes", report.busiest_host_bytes()},
                          {"bound_seconds", report.bound_seconds()},
                          {"predicted_seconds", report.predicted_seconds()},
                          {"assumed_rates", result.plan.assumed_rates()},
                          {"assumed_bytes_per_second", result.plan.assumed_bytes_per_second()}});
  }
  return {{"source", task.source_text},
          {"destination", task.destination_text},
          {"tensors", task.values->manifest().tensors().size()},
          {"size_bytes", task.values->manifest().bytes()},
          {"verified", verified},
          {"warm_up_runs", 1},
          {"strategies", strategies}};
}

std::string AddressText(const DemoCluster& cluster) {
  std::string text = absl::StrCat(
      "\nThe cluster stays until Ctrl-C.\n  export "
      "CROSSMESH_CONTROLLER=",
      cluster.controller_address(), "\n  controller metrics  http://",
      cluster.controller_metrics_address(), "/metrics\n");
  for (const DemoCluster::Worker& worker : cluster.workers()) {
    absl::StrAppend(&text, "  ", worker.name, " metrics      http://", worker.metrics_address,
                    "/metrics, memory ", worker.memory_socket, "\n");
  }
  return text;
}

[[noreturn]] void WaitForInterrupt() {
  while (true) Pause(absl::Hours(1));
}

std::string Introduction(const DemoTask& task) {
  const Manifest& manifest = task.values->manifest();
  return absl::StrCat(manifest.tensors().size(), " tensors of ",
                      FormatBytes(ByteCount(manifest.bytes())), " from ", task.source_text, " to ",
                      task.destination_text, "\n");
}

absl::Status RunDemo(Cli& cli, const DemoFlags& flags) {
  ASSIGN_OR_RETURN(const std::vector<std::string> strategies, StrategiesOf(flags));
  ASSIGN_OR_RETURN(const DemoTask task, TaskOf(flags));
  ASSIGN_OR_RETURN(const std::vector<std::string> gpus, GpusOf(flags));
  const bool verify = flags.verify == "on";
  // Before the cluster's clean-up, on which it calls, and before any thread.
  DemoCluster cluster;
  ASSIGN_OR_RETURN(const std::unique_ptr<Interrupts> interrupts,
                   Interrupts::Handle([&cluster] { cluster.Abandon(); }));
  if (!cli.json()) cli.Print(Introduction(task));
  RETURN_IF_ERROR(
      cluster.Start({.workers = flags.workers, .gpus = gpus, .worker_flags = flags.worker_flags}));
  DemoRun run({.specs = task.specs, .progress = Progress::FormFor(cli.json()), .verify = verify},
              *task.tensors, *task.values, cluster);
  RETURN_IF_ERROR(run.Prepare());
  // Whichever runs first also connects the workers and touches their memory: it is not counted.
  RETURN_IF_ERROR(run.Run(strategies.front(), "warm-up").status());
  std::vector<DemoResult> results;
  for (const std::string& strategy : strategies) {
    ASSIGN_OR_RETURN(DemoResult result, run.Run(strategy, strategy));
    results.push_back(std::move(result));
  }
  if (!flags.output.empty()) RETURN_IF_ERROR(run.Save(flags.output));
  if (cli.json()) {
    nlohmann::json document = Document(task, results, verify);
    if (flags.keep) document["cluster"] = Addresses(cluster);
    cli.PrintDocument(document);
  } else {
    cli.Print(absl::StrCat("\n", Table(results), Closing(results, verify)));
    if (flags.keep) cli.Print(AddressText(cluster));
  }
  if (flags.keep) WaitForInterrupt();
  cluster.Stop();
  return absl::OkStatus();
}

}  // namespace

void AddDemoCommand(Cli& cli, CLI::App& app) {
  CLI::App& command = cli.AddCommand(
      app, "demo", "Moves GPT-2 between two meshes of real workers on this machine, and checks it",
      "  crossmesh demo\n"
      "  crossmesh demo --strategy relay,send_recv\n"
      "  crossmesh demo model.safetensors --output out\n"
      "  crossmesh demo --devices gpu\n"
      "The source is cut four ways as FSDP does; the destination is two replicas of two-way tensor "
      "parallelism.\n");
  const auto flags = std::make_shared<DemoFlags>();
  flags->source_rules = SharedFile("gpt2.fsdp.rules");
  flags->destination_rules = SharedFile("gpt2.tp.rules");
  command.add_option("tensors", flags->tensors,
                     "Safetensors file or folder to move instead of generated values");
  command.add_option("--strategy", flags->strategies, "Only these, a,b (default: all)")
      ->delimiter(',');
  command.add_option("--source-rules", flags->source_rules, "Layout rules over the mesh fsdp=4");
  command.add_option("--destination-rules", flags->destination_rules,
                     "Layout rules over the mesh replica=2,model=2");
  command.add_option("--output", flags->output, "Folder for each destination slot's safetensors");
  command.add_option("--verify", flags->verify, "Compare every destination element")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  command.add_option("--workers", flags->workers, "An even number")->capture_default_str();
  command.add_option("--devices", flags->devices, "Move between host memory or between GPUs")
      ->check(CLI::IsMember({"host", "gpu"}))
      ->capture_default_str();
  command.add_option("--gpu", flags->gpus,
                     "UUID of a GPU to use, one for each worker (default: those of this host)");
  command.add_option(
      "--worker-flag", flags->worker_flags,
      "Given to each worker as it is, e.g. --worker-flag=--nccl-library=FILE; repeat "
      "it for more");
  command.add_flag("--keep", flags->keep, "Leave the cluster running until Ctrl-C");
  cli.Run(command, [&cli, flags] { return RunDemo(cli, *flags); });
}

}  // namespace crossmesh
