// What a chunk costs the thread that issues the work of a GPU: CPU time of each rank of a chain, as
// a table. GPUs and NCCL are the stand-ins, whose own time, as their log of calls has it, is taken
// off. What is left includes looks at work that is not done yet, of which there are more than over
// a GPU, since the stand-in is slower.

#include "common/base/status_macros.h"
#include "tests/benchmark/measure.h"
#include "tests/standin/rank_processes.h"
#include "worker/gpu/executor/testing/chain_task.h"
#include "worker/gpu/executor/testing/executor_rank.h"

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

constexpr int kRanks = 3;

// The log has wall time, in which others may have had the processor: so each call is taken to last
// as long as the median of its name.
double OwnUs(const std::vector<StandInCall>& calls) {
  std::map<std::string, std::vector<int64_t>> ns_by_name;
  for (const StandInCall& call : calls) {
    ns_by_name[call.name].push_back(call.end_ns - call.start_ns);
  }
  double us = 0;
  for (auto& [name, ns] : ns_by_name) {
    const auto median = ns.begin() + std::ssize(ns) / 2;
    std::ranges::nth_element(ns, median);
    us += static_cast<double>(*median) * static_cast<double>(ns.size()) / 1e3;
  }
  return us;
}

absl::Status Measure(int number, Meeting& meeting, int64_t chunks, int runs) {
  ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
  RETURN_IF_ERROR(rank->JoinAll(kRanks, number, meeting));
  const ChainTask chain(chunks, {.staging_bytes = int64_t{4} << 20});
  ASSIGN_OR_RETURN(GpuTaskSpec spec, rank->Spec(chain.compiled_parts[number], chain.memory));
  for (int run = 0; run < runs; ++run) {
    const size_t calls_before = rank->stand_in().Calls().size();
    const double cpu_before = ThreadSeconds();
    spec.key.instance = run;
    RETURN_IF_ERROR(rank->Run(spec).status());
    const double cpu_us = (ThreadSeconds() - cpu_before) * 1e6;
    std::vector<StandInCall> calls = rank->stand_in().Calls();
    calls.erase(calls.begin(), calls.begin() + static_cast<ptrdiff_t>(calls_before));
    const auto per_chunk = [&](double value) { return value / static_cast<double>(chunks); };
    const double own_us = OwnUs(calls);
    std::cout << absl::StrFormat("%4d %4d %12.1f %12.2f %12.2f %12.2f\n", number, run,
                                 per_chunk(static_cast<double>(calls.size())), per_chunk(cpu_us),
                                 per_chunk(own_us), per_chunk(cpu_us - own_us))
              << std::flush;
  }
  spec = {};
  return rank->Close();
}

int Main(int argc, char** argv) {
  CLI::App app("CPU time per chunk of the thread that issues the work of a GPU.");
  int64_t chunks = 256;
  int runs = 5;
  app.add_option("--chunks", chunks, "Chunks of 64 KiB that go down the chain")
      ->check(CLI::PositiveNumber);
  app.add_option("--runs", runs, "Replays")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  std::cout << absl::StrFormat("%4s %4s %12s %12s %12s %12s\n", "rank", "run", "calls", "CPU us",
                               "stand-in us", "ours us")
            << std::flush;
  int failed = 0;
  for (const std::string& result : RunRanks(kRanks, [&](int number, Meeting& meeting) {
         return Measure(number, meeting, chunks, runs);
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
