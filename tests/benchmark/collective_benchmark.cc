// Times of collectives on one tensor between workers of one host, each a process of its own: from
// the start of the workers' tasks, at a barrier, to the end of the slowest. Plans and parts are
// made before. Prints one line of JSON per collective; the script `peers/collectives` sets them
// beside PyTorch's Gloo and Open MPI.

#include "common/base/check.h"
#include "tests/benchmark/collective_case.h"
#include "tests/benchmark/collective_worker.h"
#include "tests/benchmark/measure.h"
#include "tests/benchmark/rank_processes.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

struct Options {
  CollectiveCase::Options collective;
  int64_t mebibytes = 256;
  int repeats = 5;
  bool tcp = false;
  bool no_checksums = false;
  std::string only;
};

// One rank of the collectives, in a process of its own.
class Rank {
 public:
  Rank(int32_t rank, const Options& options, RankMeeting& meeting)
      : rank_(rank),
        options_(options),
        meeting_(meeting),
        worker_({.interfaces = {"lo"}, .shared_memory = !options.tcp}) {
    meeting_.SetAddress(rank_, worker_.address());
    meeting_.Wait();
  }

  // The median of what the slowest rank takes.
  double Measure(const CollectiveCase& collective) {
    const std::shared_ptr<Arena> source =
        worker_.MakeArena(collective.TileBytes(Side::kSource, rank_));
    const std::shared_ptr<Arena> destination =
        worker_.MakeArena(collective.TileBytes(Side::kDestination, rank_));
    collective.FillSource(rank_, reinterpret_cast<float*>(source->bytes().data()));
    std::vector<double> seconds;
    for (int i = 0; i < 1 + options_.repeats; ++i) {
      // What the warm-up has left must not pass for what the others bring.
      if (i < 2) std::ranges::fill(destination->bytes(), std::byte{0xff});
      TaskSpec spec = SpecOf(collective, *source, *destination);
      meeting_.Wait();
      meeting_.SetSeconds(rank_, SecondsOf([&] { worker_.Run(std::move(spec)); }));
      meeting_.Wait();
      if (i > 0) seconds.push_back(meeting_.SlowestSeconds());
    }
    CHECK_EQ(collective.WrongElements(rank_,
                                      reinterpret_cast<const float*>(destination->bytes().data())),
             0);
    return MedianOf(std::move(seconds));
  }

 private:
  TaskSpec SpecOf(const CollectiveCase& collective, const Arena& source, const Arena& destination) {
    TaskSpec spec{.key = {.operation = ++operations_, .epoch = 1},
                  .token_high = 1,
                  .token_low = 2,
                  .part = collective.part(rank_),
                  .checksums = !options_.no_checksums};
    for (int32_t peer = 0; peer < options_.collective.devices; ++peer) {
      spec.peers.push_back(
          {.worker = absl::StrCat("worker-", peer), .address = meeting_.AddressOf(peer)});
      if (peer != rank_) spec.peer_of_device[peer] = peer;
    }
    spec.sources[rank_] = {.tensor = {source.bytes().data()}};
    spec.destinations[rank_] = {.tensor = {destination.bytes().data()}};
    return spec;
  }

  const int32_t rank_;
  const Options& options_;
  RankMeeting& meeting_;
  CollectiveWorker worker_;
  uint64_t operations_ = 0;
};

void Measure(const Options& options) {
  struct Named {
    std::string name;
    CollectiveCase collective;
  };
  std::vector<Named> all;
  for (const std::string name : kCollectives) {
    if (!options.only.empty() && options.only != name) continue;
    all.push_back({name, CollectiveCase(name, options.collective)});
  }
  RunRankProcesses(options.collective.devices, [&](int32_t number, RankMeeting& meeting) {
    Rank rank(number, options, meeting);
    for (const auto& [name, collective] : all) {
      const double seconds = rank.Measure(collective);
      if (number != 0) continue;
      const nlohmann::json measured = {
          {"collective", name},
          {"devices", options.collective.devices},
          {"mebibytes", options.mebibytes},
          {"link", options.tcp ? "tcp" : "shm"},
          {"checksums", !options.no_checksums},
          {"seconds", seconds},
          {"bytes_per_second", static_cast<double>(collective.least_bytes()) / seconds}};
      std::printf("%s\n", measured.dump().c_str());
      std::fflush(stdout);
    }
    meeting.Wait();  // none goes while others still move bytes
  });
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  crossmesh::Options options;
  CLI::App app("Times of collectives between workers of one host");
  app.add_option("--devices", options.collective.devices, "Each has a worker of its own")
      ->check(CLI::Range(2, static_cast<int>(crossmesh::RankMeeting::kRanksMax)))
      ->capture_default_str();
  app.add_option("--mebibytes", options.mebibytes, "Size of the larger tile of a device")
      ->check(CLI::Range(1, 1 << 14))
      ->capture_default_str();
  app.add_option("--rows", options.collective.rows, "Of a device's source tile in all_to_all")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--tcp", options.tcp, "Not through shared memory");
  app.add_flag("--no-checksums", options.no_checksums, "Bytes are not verified");
  app.add_option("--repeats", options.repeats, "Of each, after one that warms up")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--only", options.only, "One collective")
      ->check(CLI::IsMember(std::vector<std::string>(crossmesh::kCollectives.begin(),
                                                     crossmesh::kCollectives.end())));
  app.add_option("--chunk-bytes", options.collective.chunk_bytes, "Of plans; 0: the planner's")
      ->capture_default_str();
  app.add_option("--array-bytes", options.collective.sizes.array_bytes,
                 "What an instance's arrays between steps take, nearly")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  options.collective.bytes = options.mebibytes << 20;
  crossmesh::Measure(options);
}
