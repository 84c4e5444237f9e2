// What a step costs: launches, groups, and CPU time of the thread that issues the work of a GPU,
// for each rank of a chain, as a table. GPUs and NCCL are the stand-ins, whose own time, as their
// log of calls has it, is taken off. What is left includes looks at work that is not done yet, of
// which there are more than over a GPU, since the stand-in is slower.

#include "common/base/status_macros.h"
#include "tests/benchmark/measure.h"
#include "tests/benchmark/stand_in_time.h"
#include "tests/standin/rank_processes.h"
#include "worker/gpu/executor/testing/chain_task.h"
#include "worker/gpu/executor/testing/executor_rank.h"

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

constexpr int kRanks = 3;

struct Options {
  ChainTask::Shape shape = {.steps = 256};
  int runs = 5;

  int64_t step_bytes() const { return shape.relays * shape.chunk_bytes; }
  // For as many steps as may be on the streams, and those that a forwarder keeps.
  int64_t staging_bytes() const { return 16 * step_bytes() + (int64_t{4} << 20); }
};

constexpr char kHeader[] = "%4s %4s %12s %12s %12s %12s %12s %12s %12s %12s\n";
constexpr char kRow[] = "%4d %4d %12.2f %12.0f %12.0f %12.2f %12.1f %12.2f %12.2f %12.2f\n";

// One run of a rank's part.
struct Run {
  int number = 0;
  int run = 0;
  double steps = 0;
  double gibibytes = 0;
  double cpu_us = 0;
  double looks = 0;
  std::vector<StandInCall> calls;

  std::string ToRow() const {
    const auto launches = static_cast<double>(CountCalls(calls, "cuLaunchKernel"));
    const auto groups = static_cast<double>(CountCalls(calls, "ncclGroupEnd"));
    const double own_us = StandInUs(calls);
    return absl::StrFormat(kRow, number, run, launches / steps, launches / gibibytes,
                           groups / gibibytes, looks / steps,
                           static_cast<double>(calls.size()) / steps, cpu_us / steps,
                           own_us / steps, (cpu_us - own_us) / steps);
  }
};

absl::Status Measure(int number, Meeting& meeting, const Options& options) {
  ASSIGN_OR_RETURN(const auto rank,
                   ExecutorRank::Create(number, {.staging_bytes = options.staging_bytes()}));
  RETURN_IF_ERROR(rank->JoinAll(kRanks, number, meeting));
  // Some of the staging is for the agreement.
  const ChainTask chain =
      ChainTask::OfRelays(options.shape, options.staging_bytes() - (int64_t{1} << 20));
  ASSIGN_OR_RETURN(GpuTaskSpec spec, rank->Spec(chain.compiled_parts[number], chain.memory));
  for (int run = 0; run < options.runs; ++run) {
    const size_t calls_before = rank->stand_in().Calls().size();
    const int64_t looks_before = rank->executor().counters().looks;
    const double cpu_before = ThreadSeconds();
    spec.key.instance = run;
    RETURN_IF_ERROR(rank->Run(spec).status());
    Run measured = {
        .number = number,
        .run = run,
        .steps = static_cast<double>(chain.compiled_parts[number]->steps().size()),
        .gibibytes = static_cast<double>(options.step_bytes() * options.shape.steps) / (1 << 30),
        .cpu_us = (ThreadSeconds() - cpu_before) * 1e6,
        .looks = static_cast<double>(rank->executor().counters().looks - looks_before),
        .calls = rank->stand_in().Calls()};
    measured.calls.erase(measured.calls.begin(),
                         measured.calls.begin() + static_cast<ptrdiff_t>(calls_before));
    std::cout << measured.ToRow() << std::flush;
  }
  spec = {};
  return rank->Close();
}

int Main(int argc, char** argv) {
  CLI::App app("What a step costs the thread that issues the work of a GPU.");
  Options options;
  app.add_option("--steps", options.shape.steps, "Steps of the chain's root")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--chunks", options.shape.relays, "Chunks that go down the chain in a step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--chunk-bytes", options.shape.chunk_bytes, "A multiple of 65536")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--runs", options.runs, "Replays")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  std::cout << "Per step, but where it says per GiB.\n"
            << absl::StrFormat(kHeader, "rank", "run", "launches", "launches/GiB", "groups/GiB",
                               "looks", "calls", "CPU us", "stand-in us", "ours us")
            << std::flush;
  int failed = 0;
  for (const std::string& result : RunRanks(kRanks, [&](int number, Meeting& meeting) {
         return Measure(number, meeting, options);
       })) {
    if (result.empty()) continue;
    std::cerr << result << "\n";
    ++failed;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) { return crossmesh::Main(argc, argv); }
