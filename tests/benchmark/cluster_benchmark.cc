// What a controller and four workers on this machine do: how fast they move tensors, how soon they
// begin, what they cost when idle, and how the controller's memory grows. Prints one line of JSON.

#include "client/cli/tensor_flags.h"
#include "client/pause.h"
#include "common/base/status_macros.h"
#include "tests/benchmark/child_usage.h"
#include "tests/benchmark/cluster_case.h"
#include "tests/benchmark/measure.h"
#include "tests/benchmark/models.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

constexpr int64_t kSmallRows = 512;  // of a tensor of 1 MiB

struct Options {
  std::string manifest;
  bool tcp = false;
  bool no_checksums = false;
  bool copies = false;
  int repeats = 5;
  int operations = 10'000;
  double idle_seconds = 60;
};

// From the client's call to the operation's end, and of it the transfer; and where they are asked
// for, what is copied into the storages before, and from them afterwards.
absl::StatusOr<nlohmann::json> MeasureMove(const Options& options) {
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(options.manifest));
  ASSIGN_OR_RETURN(const std::unique_ptr<ClusterCase> cluster,
                   ClusterCase::Create({.manifest = std::move(manifest),
                                        .shared_memory = !options.tcp,
                                        .checksums = !options.no_checksums}));
  std::vector<double> seconds, transfers, fills, reads;
  int64_t destination_bytes = 0;
  for (int i = 0; i < 1 + options.repeats; ++i) {
    absl::Status filled, read;
    absl::StatusOr<v1::Operation> operation;
    const double fill = SecondsOf([&] {
      if (options.copies) filled = cluster->Fill();
    });
    const double wall = SecondsOf([&] { operation = cluster->Move(); });
    const double reading = SecondsOf([&] {
      if (options.copies) read = cluster->Read();
    });
    RETURN_IF_ERROR(filled);
    RETURN_IF_ERROR(operation.status());
    RETURN_IF_ERROR(read);
    if (i == 0) continue;  // pages are touched and the plan is cached from here on
    fills.push_back(fill);
    reads.push_back(reading);
    seconds.push_back(wall);
    transfers.push_back(operation->report().transfer_seconds());
    destination_bytes = operation->report().destination_bytes();
  }
  RETURN_IF_ERROR(cluster->Check());
  const double median = MedianOf(seconds);
  return nlohmann::json{{"seconds", median},
                        {"fill_seconds", MedianOf(fills)},
                        {"read_seconds", MedianOf(reads)},
                        {"transfer_seconds", MedianOf(transfers)},
                        {"destination_bytes", destination_bytes},
                        {"bytes_per_second", static_cast<double>(destination_bytes) / median}};
}

// From the operation's creation to the first byte, with a cached plan.
absl::StatusOr<nlohmann::json> MeasureStart(const Options& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ClusterCase> cluster,
                   ClusterCase::Create({.manifest = OneMatrix(kSmallRows, kSmallRows)}));
  std::vector<double> first_byte, walls;
  for (int i = 0; i < 5 + options.repeats; ++i) {
    absl::StatusOr<v1::Operation> operation;
    const double wall = SecondsOf([&] { operation = cluster->Move(); });
    RETURN_IF_ERROR(operation.status());
    if (i < 5) continue;
    const v1::OperationReport& report = operation->report();
    const double before_dispatch = report.total_seconds() - report.dispatch_seconds() -
                                   report.transfer_seconds() - report.commit_seconds();
    first_byte.push_back(std::max(0.0, before_dispatch) + report.first_byte_seconds());
    walls.push_back(wall);
  }
  return nlohmann::json{{"first_byte_seconds", MedianOf(first_byte)}, {"seconds", MedianOf(walls)}};
}

// Each daemon's share of a core while nothing happens.
absl::StatusOr<nlohmann::json> MeasureIdle(const Options& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ClusterCase> cluster,
                   ClusterCase::Create({.manifest = OneMatrix(kSmallRows, kSmallRows)}));
  RETURN_IF_ERROR(cluster->Move().status());
  Pause(absl::Seconds(3));
  const std::vector<ChildUsage> before = UsageOfChildren();
  const double seconds = SecondsOf([&] { Pause(absl::Seconds(options.idle_seconds)); });
  const std::vector<ChildUsage> after = UsageOfChildren();
  nlohmann::json shares = nlohmann::json::array();
  for (size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
    const double used = after[i].processor_seconds - before[i].processor_seconds;
    shares.push_back({{"program", after[i].program}, {"share", used / seconds}});
  }
  return nlohmann::json{{"seconds", seconds}, {"daemons", shares}};
}

int64_t ControllerBytes() {
  for (const ChildUsage& child : UsageOfChildren()) {
    if (child.program.starts_with("crossmesh-contr")) return child.resident_bytes;
  }
  return 0;
}

// The controller's memory after every tenth of many operations.
absl::StatusOr<nlohmann::json> MeasureMemory(const Options& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ClusterCase> cluster,
                   ClusterCase::Create({.manifest = OneMatrix(64, 64)}));
  nlohmann::json samples = nlohmann::json::array();
  const int tenth = std::max(1, options.operations / 10);
  for (int i = 1; i <= options.operations; ++i) {
    RETURN_IF_ERROR(cluster->Move().status());
    if (i % tenth == 0) {
      samples.push_back({{"operations", i}, {"resident_bytes", ControllerBytes()}});
    }
  }
  return nlohmann::json{{"samples", samples}};
}

int Print(const absl::StatusOr<nlohmann::json>& measured) {
  if (!measured.ok()) {
    std::fprintf(stderr, "%s\n", measured.status().ToString().c_str());
    return 1;
  }
  std::printf("%s\n", measured->dump().c_str());
  return 0;
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  using crossmesh::Print;
  crossmesh::Options options;
  CLI::App app("Figures of a controller and four workers on this machine");
  app.require_subcommand(1);
  CLI::App* const move = app.add_subcommand("move", "Moves the tensors of a manifest");
  move->add_option("manifest", options.manifest, "Manifest file")->required();
  move->add_flag("--tcp", options.tcp, "Without shared memory between the workers");
  move->add_flag("--no-checksums", options.no_checksums, "Without checksums");
  move->add_flag("--copies", options.copies,
                 "Beside it, a copy of all into the storages, and one of all from them");
  move->add_option("--repeats", options.repeats, "Moves; medians are printed");
  CLI::App* const start = app.add_subcommand("start", "Time to the first byte");
  start->add_option("--repeats", options.repeats, "Operations; medians are printed");
  CLI::App* const idle = app.add_subcommand("idle", "Processor time of idle daemons");
  idle->add_option("--seconds", options.idle_seconds, "How long");
  CLI::App* const memory = app.add_subcommand("memory", "The controller's memory");
  memory->add_option("--operations", options.operations, "How many operations");
  CLI11_PARSE(app, argc, argv);
  if (*move) return Print(crossmesh::MeasureMove(options));
  if (*start) return Print(crossmesh::MeasureStart(options));
  if (*idle) return Print(crossmesh::MeasureIdle(options));
  return Print(crossmesh::MeasureMemory(options));
}
