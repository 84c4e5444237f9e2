// Three executors move a small plan over a network that is hostile: whatever their peers send,
// every task ends, a device that is reported complete has the right bytes, and nothing outside of
// tiles is written.

#include "common/base/check.h"
#include "common/base/fake_clock.h"
#include "common/event_loop/event_loop.h"
#include "common/plan/testing/random_source.h"
#include "common/plan/worker_part.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/hostile_network.h"
#include "worker/executor/executor.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/testing/random_case.h"
#include "worker/executor/testing/tile_memory.h"

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int32_t kWorkers = 3;
constexpr uint64_t kCases = 16;
constexpr int64_t kStagingBytes = 2 << 20;  // as little as the plans' chunks allow
constexpr absl::Duration kDeadline = absl::Seconds(10);
// After this, executors drop the messages of operations that they do not know.
constexpr absl::Duration kPendingFor = absl::Seconds(30);

class Reports final : public TaskObserver {
 public:
  void OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& report) override {
    CHECK(devices.emplace(report.device, report.status).second) << report.device;
  }
  void OnTaskDone(const TaskReport& /*report*/) override { ++ended; }

  absl::flat_hash_map<DeviceRank, absl::Status> devices;
  int ended = 0;
};

// A plan, and which worker runs which of its devices.
struct Case {
  explicit Case(uint64_t seed) : Case(RandomSource(seed)) {}
  explicit Case(RandomSource random)
      : plan(RandomCase(random)), worker_of_device(DealDevices(random, plan, kWorkers)) {
    std::vector<std::vector<DeviceId>> devices(kWorkers);
    for (size_t rank = 0; rank < worker_of_device.size(); ++rank) {
      devices[worker_of_device[rank]].push_back(plan.tensors().devices()[rank]);
    }
    absl::StatusOr<std::vector<WorkerPart>> cut = CutParts(plan, devices);
    CHECK_OK(cut);
    for (WorkerPart& part : *cut) {
      auto prepared = PreparedPart::Create(std::make_shared<const WorkerPart>(std::move(part)));
      CHECK_OK(prepared);
      parts.push_back(*std::move(prepared));
    }
  }

  Plan plan;
  std::vector<int32_t> worker_of_device;
  std::vector<std::shared_ptr<const PreparedPart>> parts;
};

// Made once: what is fuzzed is the messages.
const Case& CaseOf(uint64_t number) {
  static const auto& cases = *[] {
    auto* made = new std::vector<Case>;
    for (uint64_t seed = 1; seed <= kCases; ++seed) made->emplace_back(seed);
    return made;
  }();
  return cases[number % kCases];
}

TaskSpec SpecFor(int32_t worker, const Case& one, const TileMemory& memory) {
  TaskSpec spec{.key = {.operation = 1, .epoch = 1},
                .token_high = 7,
                .token_low = 8,
                .part = one.parts[worker],
                .deadline = kDeadline,
                .stall_limit = absl::Hours(1)};
  for (int32_t peer = 0; peer < kWorkers; ++peer) {
    spec.peers.push_back({.worker = absl::StrCat("w", peer), .address = absl::StrCat(peer)});
  }
  for (DeviceRank rank = 0; rank < std::ssize(one.worker_of_device); ++rank) {
    if (one.worker_of_device[rank] != worker) {
      spec.peer_of_device[rank] = one.worker_of_device[rank];
      continue;
    }
    spec.sources[rank] = memory.tiles(Side::kSource, rank);
    spec.destinations[rank] = memory.tiles(Side::kDestination, rank);
  }
  return spec;
}

// The executors of one run. Members are destroyed in the order that Executor asks for.
class Cluster {
 public:
  explicit Cluster(FuzzInput& input) : network_(input) {
    for (Worker& worker : workers_) {
      auto loop = EventLoop::Create(clock_, {.spin = absl::ZeroDuration()});
      CHECK_OK(loop);
      worker.loop = *std::move(loop);
      worker.executor = Executor::Create(
          *worker.loop, {.staging_bytes = kStagingBytes, .pending_for = kPendingFor});
      worker.transport = network_.AddSource(*worker.executor);
      CHECK_OK(worker.executor->Attach(*worker.transport));
    }
  }

  void Run(const Case& one, const TileMemory& memory, Reports& reports) {
    for (int32_t i = 0; i < kWorkers; ++i) {
      CHECK_OK(workers_[i].executor->Start(SpecFor(i, one, memory), reports));
    }
    RunUntilIdle();
    if (reports.ended == kWorkers) return;
    CHECK(network_.harmed()) << "what was sent has come, and still a task waits";
    for (const absl::Duration step : {kDeadline, kPendingFor, kPendingFor}) {
      clock_.Advance(step);
      RunUntilIdle();
    }
    CHECK_EQ(reports.ended, kWorkers);
  }
  bool harmed() const { return network_.harmed(); }

 private:
  struct Worker {
    std::unique_ptr<EventLoop> loop;
    std::unique_ptr<Transport> transport;
    std::unique_ptr<Executor> executor;
  };

  void RunUntilIdle() {
    bool busy = true;
    while (busy) {
      busy = network_.Step();
      for (const Worker& worker : workers_) {
        busy |= worker.loop->RunOnce(absl::ZeroDuration()) > 0;
      }
    }
  }

  FakeClock clock_;
  HostileNetwork network_;
  std::array<Worker, kWorkers> workers_;
};

}  // namespace

void FuzzOne(const uint8_t* data, size_t size) {
  FuzzInput input({data, size});
  const Case& one = CaseOf(input.Byte());
  TileMemory memory(one.plan);
  Reports reports;
  Cluster cluster(input);
  cluster.Run(one, memory, reports);
  for (const auto& [device, status] : reports.devices) {
    CHECK(status.ok() || cluster.harmed()) << status;
    if (status.ok()) {
      CHECK_OK(memory.CheckDestination(device));
    }
  }
  CHECK_OK(memory.CheckUntouched());
}

}  // namespace crossmesh
