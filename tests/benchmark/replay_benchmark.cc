// How soon a part that is replayed moves its bytes: from the end of the op that produces them, on a
// thread of its own, to the first chunk on its way, and to the last byte in place and verified.
// Between two workers over TCP; each instance begins when the one before has arrived. Prints a
// table of medians.

#include "common/base/check.h"
#include "common/base/format.h"
#include "common/base/mutex.h"
#include "common/base/table.h"
#include "common/plan/worker_part.h"
#include "tests/benchmark/benchmark_worker.h"
#include "tests/benchmark/measure.h"
#include "worker/data_transport.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/replay_runner.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using Clock = std::chrono::steady_clock;

constexpr ReplayKey kKey{.operation = 1, .epoch = 1, .plan = 1};
constexpr int32_t kBuffers = 2;

double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// One end; waits for its instances.
class End final : public ReplayObserver {
 public:
  void OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& report) override {
    CHECK_OK(report.status);
  }
  void OnTaskDone(const TaskReport& report) override {
    CHECK_OK(report.status);
    MutexLock lock(mutex_);
    ++done_;
    ended_ = Clock::now();
    first_byte_ = report.seconds.first_byte;
    changed_.Signal();
  }
  void OnReplaysStopped(const ReplayKey& /*key*/) override {
    MutexLock lock(mutex_);
    stopped_ = true;
    changed_.Signal();
  }

  // Returns when instance `last` ended.
  Clock::time_point WaitFor(uint32_t last) {
    MutexLock lock(mutex_);
    while (done_ <= last) changed_.Wait(mutex_);
    return ended_;
  }
  double first_byte() {
    MutexLock lock(mutex_);
    return first_byte_;
  }
  void WaitForStop() {
    MutexLock lock(mutex_);
    while (!stopped_) changed_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  uint32_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  Clock::time_point ended_ ABSL_GUARDED_BY(mutex_);
  double first_byte_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

struct Medians {
  double first_byte = 0;
  double arrived = 0;
};

class Benchmark {
 public:
  Benchmark(int64_t bytes, const DataTransportOptions& transport)
      : planes_{std::make_unique<BenchmarkWorker>(transport),
                std::make_unique<BenchmarkWorker>(transport)} {
    const Plan plan = PlanOfOneTensor("b.0", bytes);
    const std::vector<std::vector<DeviceId>> devices = {{{.host = "a", .index = 0}},
                                                        {{.host = "b", .index = 0}}};
    absl::StatusOr<std::vector<WorkerPart>> parts = CutParts(plan, devices);
    CHECK_OK(parts);
    for (int i = 0; i < 2; ++i) {
      ReplaySpec spec{.key = kKey, .token_high = 1, .token_low = 2};
      auto part = PreparedPart::Create(std::make_shared<const WorkerPart>(std::move((*parts)[i])));
      CHECK_OK(part);
      spec.part = *std::move(part);
      for (int peer = 0; peer < 2; ++peer) {
        spec.peers.push_back({absl::StrCat("worker-", peer), planes_[peer]->address()});
      }
      const DeviceRank own = *plan.tensors().FindDevice(devices[i][0]);
      spec.peer_of_device[*plan.tensors().FindDevice(devices[1 - i][0])] = 1 - i;
      for (int32_t buffer = 0; buffer < kBuffers; ++buffer) {
        arenas_.push_back(FilledArena(bytes, std::byte{1}));
        BoundTiles tiles{.tensor = {arenas_.back()->bytes().data()}};
        ReplaySpec::Buffer& bound = spec.buffers.emplace_back();
        (i == 0 ? bound.sources : bound.destinations)[own] = std::move(tiles);
      }
      planes_[i]->loop().RunAndWait([&] {
        CHECK_OK(planes_[i]->executor().replays().StartReplays(std::move(spec), ends_[i]));
      });
    }
  }

  Medians Measure(uint32_t instances) {
    std::vector<double> first_byte, arrived;
    for (uint32_t instance = 0; instance < instances; ++instance) {
      for (int i = 0; i < 2; ++i) {
        planes_[i]->loop().RunAndWait([&] {
          planes_[i]->executor().replays().Replay(kKey, static_cast<int32_t>(instance % kBuffers),
                                                  instance);
        });
      }
      double posted = 0;
      const Clock::time_point produced = Clock::now();
      planes_[0]->loop().Post([&, instance] {
        posted = Since(produced);
        planes_[0]->executor().replays().ReplaySourceHere(kKey, instance);
      });
      const Clock::time_point end = ends_[1].WaitFor(instance);
      ends_[0].WaitFor(instance);
      first_byte.push_back(posted + ends_[0].first_byte());
      arrived.push_back(std::chrono::duration<double>(end - produced).count());
    }
    for (int i = 0; i < 2; ++i) {
      planes_[i]->loop().RunAndWait([&] {
        planes_[i]->executor().replays().StopReplays(kKey, absl::CancelledError("done"), instances);
      });
    }
    for (End& end : ends_) end.WaitForStop();
    return {MedianOf(std::move(first_byte)), MedianOf(std::move(arrived))};
  }

 private:
  std::vector<std::shared_ptr<Arena>> arenas_;
  End ends_[2];
  std::array<std::unique_ptr<BenchmarkWorker>, 2> planes_;
};

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  using crossmesh::FormatSeconds;
  using crossmesh::TextTable;
  uint32_t instances = 300;
  std::string interface = "lo";
  CLI::App app("How soon a part that is replayed moves its bytes");
  app.add_option("--instances", instances, "Of each size")->check(CLI::PositiveNumber);
  app.add_option("--interface", interface, "Network interface of both workers");
  CLI11_PARSE(app, argc, argv);
  TextTable table({"BYTES>", "FIRST BYTE>", "ARRIVED>", "RATE>"});
  for (const int64_t bytes :
       {int64_t{1} << 12, int64_t{1} << 16, int64_t{1} << 20, int64_t{1} << 24, int64_t{1} << 26}) {
    crossmesh::Benchmark benchmark(bytes, {.interfaces = {interface}, .shared_memory = false});
    const crossmesh::Medians medians = benchmark.Measure(instances);
    table.AddRow({crossmesh::FormatBytes(crossmesh::ByteCount(bytes)),
                  FormatSeconds(medians.first_byte), FormatSeconds(medians.arrived),
                  crossmesh::FormatRate(static_cast<double>(bytes) / medians.arrived)});
  }
  std::printf("%s", table.ToString().c_str());
}
