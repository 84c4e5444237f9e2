// Time and memory of planning, proof and cutting into parts, on one core. Each case runs in a
// process of its own, so that its peak of memory is its own, and with the memory settings of the
// controller. Prints one line of JSON per case.

#include "common/base/allocator.h"
#include "common/base/check.h"
#include "common/plan/proof.h"
#include "common/plan/worker_part.h"
#include "common/reshard/reshard_tensors.h"
#include "common/wire/worker_part_codec.h"
#include "planner/reshard/plan_reshard.h"
#include "tests/benchmark/measure.h"
#include "tests/benchmark/plan_cases.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace crossmesh {
namespace {

struct Options {
  int repeats = 7;
  std::string only;
};

constexpr std::array kPhases = {"table", "plan", "proof", "parts"};
using Seconds = std::array<double, kPhases.size()>;

struct Result {
  Seconds seconds{};
  // The most before a plan, or its proof, asks again whether it is wanted still.
  double unasked = 0;
  std::vector<WorkerPart> parts;
  PlanFigures figures;
};

// One worker per host.
std::vector<std::vector<DeviceId>> DevicesByHost(const TensorTable& tensors) {
  std::vector<std::vector<DeviceId>> workers(tensors.hosts().size());
  for (size_t d = 0; d < tensors.devices().size(); ++d) {
    workers[tensors.host_of(static_cast<DeviceRank>(d))].push_back(tensors.devices()[d]);
  }
  return workers;
}

Result RunOnce(const PlanCase& plan_case) {
  Result result;
  size_t phase = 0;
  double before = ThreadSeconds();
  double asked = before;
  const auto note_asked = [&] {
    const double now = ThreadSeconds();
    result.unasked = std::max(result.unasked, now - std::exchange(asked, now));
    return false;
  };
  const auto finish_phase = [&] {
    const double now = ThreadSeconds();
    result.seconds[phase++] = now - std::exchange(before, now);
  };
  absl::StatusOr<TensorTable> table = BuildReshardTensors(
      plan_case.manifest, {.mesh = plan_case.source_mesh, .rules = plan_case.source_rules},
      {.mesh = plan_case.destination_mesh, .rules = plan_case.destination_rules},
      plan_case.replica_axes);
  CHECK_OK(table);
  const auto tensors = std::make_shared<const TensorTable>(*std::move(table));
  finish_phase();
  const absl::StatusOr<Plan> plan = PlanReshard({.tensors = tensors}, note_asked);
  CHECK_OK(plan);
  note_asked();
  finish_phase();
  CHECK_OK(Prove(*plan, ProofLimits(), note_asked));
  note_asked();
  finish_phase();
  absl::StatusOr<std::vector<WorkerPart>> parts = CutParts(*plan, DevicesByHost(*tensors));
  CHECK_OK(parts);
  finish_phase();
  result.parts = *std::move(parts);
  result.figures = plan->figures();
  return result;
}

// Of this process so far.
int64_t PeakBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

int64_t LargestPart(const std::vector<WorkerPart>& parts) {
  size_t largest = 0;
  for (const WorkerPart& part : parts) largest = std::max(largest, ToProto(part).ByteSizeLong());
  return static_cast<int64_t>(largest);
}

nlohmann::json Measure(const std::string& name, int repeats) {
  const PlanCase plan_case = MakePlanCase(name);
  nlohmann::json measured = {{"case", name}};
  std::vector<double> totals;
  std::vector<double> unasked;
  std::array<std::vector<double>, kPhases.size()> phases;
  for (int i = 0; i < repeats; ++i) {
    const Result result = RunOnce(plan_case);
    if (i == 0) {
      measured["peak_bytes"] = PeakBytes();
      measured["part_bytes"] = LargestPart(result.parts);
      const double bound = result.figures.bound.seconds;
      measured["predicted_to_bound"] = bound > 0 ? result.figures.predicted_seconds / bound : 1;
      measured["depth"] = result.figures.depth;
    }
    for (size_t phase = 0; phase < kPhases.size(); ++phase) {
      phases[phase].push_back(result.seconds[phase]);
    }
    unasked.push_back(result.unasked);
    totals.push_back(std::accumulate(result.seconds.begin(), result.seconds.end(), 0.0));
  }
  measured["seconds"] = MedianOf(totals);
  measured["unasked_seconds"] = MedianOf(unasked);
  for (size_t phase = 0; phase < kPhases.size(); ++phase) {
    measured["phases"][kPhases[phase]] = MedianOf(phases[phase]);
  }
  return measured;
}

void MeasureInChild(const std::string& name, int repeats) {
  const pid_t child = fork();
  CHECK(child >= 0) << "fork";
  if (child == 0) {
    std::printf("%s\n", Measure(name, repeats).dump().c_str());
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0) << "case " << name << " ended with " << status;
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  crossmesh::KeepFreedMemory();
  crossmesh::Options options;
  CLI::App app("Time and memory of planning, proof and cutting into parts, on one core");
  app.add_option("--repeats", options.repeats, "Runs of each case; medians are printed");
  app.add_option("--only", options.only, "The one case to run")
      ->check(CLI::IsMember(crossmesh::PlanCaseNames()));
  CLI11_PARSE(app, argc, argv);
  for (const std::string& name : crossmesh::PlanCaseNames()) {
    if (options.only.empty() || options.only == name) {
      crossmesh::MeasureInChild(name, options.repeats);
    }
  }
}
