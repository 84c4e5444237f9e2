// Two workers with two GPUs each, of the stand-in, whose memory is files in memory.

#include "client/cli/storage_tiles.h"
#include "client/client.h"
#include "common/base/clock.h"
#include "common/memory_protocol/piece_list.h"
#include "common/mesh/gpu_host.h"
#include "common/plan/plan.h"
#include "common/plan/storage_layout.h"
#include "common/testing/status_matchers.h"
#include "common/wire/tensor_codec.h"
#include "tests/live/live_cluster.h"
#include "tests/live/reshard_case.h"
#include "tests/live/running_reshard.h"
#include "tests/standin/stand_in.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <sys/mman.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace fs = std::filesystem;

constexpr int64_t kGpuBytes = 64 << 20;
constexpr int kGpus = 4;
constexpr char kDevices[] = "node-0.1-2,node-1.1-2";
constexpr absl::Duration kGpuArriveMax = absl::Seconds(60);
// From the end of a GPU's process to the failure of what it was to receive.
constexpr absl::Duration kGpuLossMax = absl::Seconds(10);

// Those of GPU `number`; 0 when there is none.
pid_t ProcessOf(int number) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    std::stringstream command;
    command << std::ifstream(entry.path() / "cmdline").rdbuf();
    if (absl::StrContains(command.str(), "crossmesh-gpu") &&
        absl::StrContains(command.str(), StandInUuid(number))) {
      return std::atoi(entry.path().filename().c_str());
    }
  }
  return 0;
}

// A storage of the worker, of a GPU's memory that is a file.
struct GpuTiles {
  int number = 0;  // of the GPU
  std::unique_ptr<StorageTiles> tiles;
  GpuStorage storage;

  // Calls `use` with the bytes.
  void Map(absl::FunctionRef<void(std::span<std::byte>)> use) const {
    const int64_t bytes = storage.description.bytes;
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, storage.descriptor.get(), 0);
    ASSERT_NE(memory, MAP_FAILED);
    use(std::span(static_cast<std::byte*>(memory), bytes));
    munmap(memory, bytes);
  }
};

// Tiles of a destination in an allocation of this process, backwards and with gaps between them.
struct LentTiles {
  StorageTiles* tiles = nullptr;
  UniqueFd allocation;
  std::vector<MemoryPiece> pieces;

  void Expect(const Manifest& manifest, uint8_t version) const {
    std::vector<std::byte> bytes(tiles->bytes());
    for (const MemoryPiece& piece : pieces) {
      ASSERT_EQ(pread(allocation.get(), bytes.data() + piece.offset, piece.bytes,
                      piece.allocation_offset),
                piece.bytes);
    }
    std::atomic<int64_t> done_bytes = 0;
    EXPECT_OK(tiles->Check(VersionedValues(manifest, version), bytes, done_bytes));
  }
};

class GpuTest : public testing::Test {
 protected:
  void Start(const std::string& driver = StandInDriverPath(),
             const std::string& m2n = StandInM2nPath()) {
    setenv("CROSSMESH_STANDIN_DEVICES", absl::StrCat(kGpus).c_str(), 1);
    setenv("CROSSMESH_STANDIN_KERNELS", StandInKernelsPath().c_str(), 1);
    LiveCluster::Options options = {.workers = {"node-0", "node-1"},
                                    .worker_flags = {"--cuda-library", driver, "--nccl-library",
                                                     StandInNcclPath(), "--m2n-library", m2n}};
    for (int number = 0; number < kGpus; ++number) {
      const std::string worker = absl::StrCat("node-", number / 2);
      std::vector<std::string>& flags = options.flags_of_worker[worker];
      flags.push_back("--gpu");
      flags.push_back(absl::StrCat(worker, ".", number % 2 + 1, "=", StandInUuid(number)));
    }
    ASSERT_OK_AND_ASSIGN(cluster_, LiveCluster::Start(std::move(options)));
  }
  // From a cut in 4 to 2 replicas that are cut in 2, unless `options` say something else.
  void MakeCase(ReshardOptions options = {
                    .source = absl::StrCat("fsdp=4 on ", kDevices),
                    .source_layout = "[fsdp, ...] chunk",
                    .destination = absl::StrCat("replica=2,model=2 on ", kDevices),
                    .destination_layout = "[model, ...] chunk"}) {
    options.manifest = manifest_;
    ASSERT_OK_AND_ASSIGN(DescribedReshard reshard, DescribedReshard::Create(options));
    spec_ = std::move(reshard.spec);
    tensors_ = std::move(reshard.tensors);
    for (int number = 0; number < kGpus; ++number) {
      const std::optional<DeviceRank> rank = tensors_->FindDevice(DeviceOf(number));
      if (!rank.has_value()) continue;
      if (tensors_->BytesOf(Side::kSource, *rank) > 0) {
        sources_.push_back(Create(Side::kSource, number, "training"));
      }
      if (tensors_->BytesOf(Side::kDestination, *rank) > 0) {
        destinations_.push_back(Create(Side::kDestination, number, "serving"));
      }
    }
  }
  static DeviceId DeviceOf(int number) {
    return {.host = absl::StrCat("node-", number / 2), .index = number % 2 + 1};
  }
  GpuTiles Create(Side side, int number, const std::string& storage) {
    const DeviceId device = DeviceOf(number);
    GpuTiles made{.number = number};
    made.tiles = std::make_unique<StorageTiles>(*tensors_, side, *tensors_->FindDevice(device));
    absl::StatusOr<MemoryClient> memory = cluster_->Memory(device.host);
    EXPECT_OK(memory);
    auto created = memory->CreateOnGpu(storage, ToString(device), made.tiles->bytes());
    EXPECT_OK(created);
    if (created.ok()) made.storage = *std::move(created);
    return made;
  }
  // As storage "lent". The allocation is memory of the GPU as any process has it: by descriptor.
  LentTiles Lend(const GpuTiles& destination) {
    constexpr int64_t kGap = 4160;
    constexpr int64_t kGranule = 2 << 20;
    const DeviceId device = DeviceOf(destination.number);
    const StorageLayout layout =
        LayOut(*tensors_, Side::kDestination, *tensors_->FindDevice(device));
    LentTiles lent{.tiles = destination.tiles.get()};
    int64_t end = layout.bytes;
    int64_t used = 0;
    for (int64_t tensor = std::ssize(layout.offset_of_tensor) - 1; tensor >= 0; --tensor) {
      const int64_t offset = layout.offset_of_tensor[tensor];
      if (offset < 0) continue;
      used += kGap;
      lent.pieces.insert(lent.pieces.begin(),
                         {.offset = offset, .bytes = end - offset, .allocation_offset = used});
      used += end - offset;
      end = offset;
    }
    const int64_t bytes = (used + kGranule - 1) / kGranule * kGranule;
    absl::StatusOr<MemoryClient> memory = cluster_->Memory(device.host);
    EXPECT_OK(memory);
    auto own = memory->CreateOnGpu("pool", ToString(device), bytes);
    EXPECT_OK(own);
    EXPECT_OK(memory->Lend("allocation", ToString(device), bytes, own->descriptor.get()));
    EXPECT_OK(memory->Delete("pool", ToString(device)));
    EXPECT_OK(memory->Bind(
        "lent", ToString(device),
        {.bytes = layout.bytes, .list = {.allocations = {"allocation"}, .pieces = lent.pieces}}));
    lent.allocation = std::move(own->descriptor);
    return lent;
  }
  void FillSources(uint8_t version) {
    std::atomic<int64_t> done_bytes = 0;
    for (const GpuTiles& source : sources_) {
      source.Map([&](std::span<std::byte> memory) {
        source.tiles->Fill(VersionedValues(manifest_, version), memory, done_bytes);
      });
    }
  }
  void ExpectDestinations(uint8_t version) {
    std::atomic<int64_t> done_bytes = 0;
    for (GpuTiles& destination : destinations_) {
      const DeviceId device = DeviceOf(destination.number);
      ASSERT_OK_AND_ASSIGN(MemoryClient memory, cluster_->Memory(device.host));
      ASSERT_OK_AND_ASSIGN(destination.storage, memory.OpenOnGpu("serving", ToString(device)));
      destination.Map([&](std::span<std::byte> bytes) {
        EXPECT_OK(destination.tiles->Check(VersionedValues(manifest_, version), bytes, done_bytes));
      });
    }
  }
  void ExpectCommits(uint8_t version) {
    FillSources(version);
    ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                         Execute(cluster_->controller_address(), spec_));
    ASSERT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED) << operation.ShortDebugString();
    for (const v1::TaskReport& worker : operation.report().workers()) {
      EXPECT_THAT(worker.gpu_libraries(),
                  ElementsAre(AllOf(HasSubstr("CUDA driver"), HasSubstr("stand-in")),
                              AllOf(HasSubstr("NCCL"), HasSubstr("stand-in"))));
    }
    ExpectDestinations(version);
  }

  Manifest manifest_ = TensorsOf(kGpuBytes);
  std::unique_ptr<LiveCluster> cluster_;
  v1::ReshardSpec spec_;
  std::unique_ptr<const TensorTable> tensors_;
  std::vector<GpuTiles> sources_;
  std::vector<GpuTiles> destinations_;
};

TEST_F(GpuTest, MovesTensorsBetweenGpusAgainAndAgain) {
  Start();
  MakeCase();
  for (const uint8_t version : {1, 2, 3}) ExpectCommits(version);
}

// In few long steps, of chunks up to 16 MiB, where others have some of 64 KiB.
TEST_F(GpuTest, WhereGpusAreDescribedTheirPlansGoBySteps) {
  Start();
  MakeCase();
  ASSERT_OK_AND_ASSIGN(const Topology network, GpuHosts("h100x8", {"node-0", "node-1"}));
  *spec_.mutable_topology() = ToProto(network);
  ASSERT_OK_AND_ASSIGN(Client client, Client::Connect(cluster_->controller_address(), {}));
  v1::PlanReshardRequest request;
  *request.mutable_spec() = spec_;
  ASSERT_OK_AND_ASSIGN(const v1::PlanReshardResponse planned, client.Plan(request));
  EXPECT_THAT(planned.summary().search(), HasSubstr(" steps, "));
  EXPECT_GT(planned.summary().chunk_bytes(), Plan::kChunkBytesDefault);
  for (const uint8_t version : {1, 2}) ExpectCommits(version);
}

TEST_F(GpuTest, ACalibrationTakesThePlaceOfWhatWasAssumed) {
  Start();
  ASSERT_OK_AND_ASSIGN(Client client, Client::Connect(cluster_->controller_address(), {}));
  // The other devices of these hosts have no worker.
  ASSERT_OK_AND_ASSIGN(const Topology assumed, GpuHosts("l40s-pcie", {"node-0", "node-1"}));
  ASSERT_OK(client.SetNetwork(ToProto(assumed)));
  v1::CalibrateGpusRequest request;
  request.set_keep_description(true);
  ASSERT_OK_AND_ASSIGN(const v1::CalibrateGpusResponse looked, client.CalibrateGpus(request));
  EXPECT_EQ(looked.network().revision(), 1);
  EXPECT_EQ(client.GetNetwork()->revision(), 1);
  request.set_keep_description(false);
  ASSERT_OK_AND_ASSIGN(const v1::CalibrateGpusResponse response, client.CalibrateGpus(request));
  EXPECT_THAT(FromProto(response.before().topology()), IsOkAndHolds(assumed));
  EXPECT_EQ(response.network().revision(), 2);
  ASSERT_OK_AND_ASSIGN(const Topology now, FromProto(client.GetNetwork()->topology()));
  // The stand-in has a group in progress for 50 us at least.
  EXPECT_GE(now.gpu_costs().group_ns.value, 50'000);
  for (const GpuCost& cost :
       {now.gpu_costs().launch_ns, now.gpu_costs().group_ns, now.gpu_costs().message_ns}) {
    EXPECT_THAT(cost.source, AllOf(StartsWith("measured on "), HasSubstr(" at 2")));
  }
  for (int number = 0; number < kGpus; ++number) {
    const Gpu& gpu = *now.FindGpu(DeviceOf(number));
    EXPECT_THAT(gpu.copy_source, StartsWith("measured on "));
    EXPECT_THAT(gpu.link_source, StartsWith("measured on "));
    EXPECT_NE(gpu.link_out_bytes_per_second,
              assumed.FindGpu(DeviceOf(number))->link_out_bytes_per_second);
  }
  EXPECT_EQ(now.FindGpu({"node-0", 0})->copy_source, "assumed");
  EXPECT_THAT(response.warnings(), Contains("GPU node-0.0: not measured, it stays as it was"));
  // Operations have the GPUs again.
  MakeCase();
  for (const uint8_t version : {1, 2}) ExpectCommits(version);
}

// From two GPUs of a worker to two of the other, each cut its own way, by NVIDIA's own reshard.
ReshardOptions AcrossWorkers() {
  return {.source = "fsdp=2 on node-0.1-2",
          .source_layout = "[fsdp, ...]",
          .destination = "model=2 on node-1.1-2",
          .destination_layout = "[..., model]",
          .replica_axes = {}};
}

TEST_F(GpuTest, NcclM2nMovesTensorsAgainAndAgain) {
  manifest_ = EvenTensors();
  Start();
  MakeCase(AcrossWorkers());
  ASSERT_OK_AND_ASSIGN(const Topology network, GpuHosts("h100x8", {"node-0", "node-1"}));
  *spec_.mutable_topology() = ToProto(network);
  ExpectCommits(1);  // by relays, on a communicator of its own
  spec_.set_strategy("m2n");
  for (const uint8_t version : {2, 3}) {
    FillSources(version);
    ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                         Execute(cluster_->controller_address(), spec_));
    ASSERT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED) << operation.ShortDebugString();
    for (const v1::TaskReport& worker : operation.report().workers()) {
      EXPECT_THAT(worker.gpu_libraries(), Contains(HasSubstr("libnccl_m2n.so")));
    }
    ExpectDestinations(version);
  }
  spec_.clear_strategy();
  ExpectCommits(4);
}

TEST_F(GpuTest, WithoutNcclM2nItsStrategySaysWhy) {
  manifest_ = EvenTensors();
  Start(StandInDriverPath(), "libnccl_m2n-that-is-not-there.so");
  MakeCase(AcrossWorkers());
  ASSERT_OK_AND_ASSIGN(const Topology network, GpuHosts("h100x8", {"node-0", "node-1"}));
  *spec_.mutable_topology() = ToProto(network);
  spec_.set_strategy("m2n");
  FillSources(1);
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                       Execute(cluster_->controller_address(), spec_));
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_FAILED);
  EXPECT_THAT(operation.error(),
              AllOf(HasSubstr("strategy m2n: NCCL M2N is not available: library "
                              "libnccl_m2n-that-is-not-there.so cannot be loaded")));
  spec_.clear_strategy();
  ExpectCommits(2);
}

// One has all, for the two of the other worker: a broadcast group.
TEST_F(GpuTest, SmallTensorsAreBroadcastWithTheSameResult) {
  manifest_ = TensorsOf(256 << 10);
  Start();
  MakeCase({.source = "x=1 on node-0.1",
            .source_layout = "[...]",
            .destination = "replica=2 on node-1.1-2",
            .destination_layout = "[...]"});
  FillSources(1);
  ASSERT_OK_AND_ASSIGN(const v1::Operation broadcast,
                       Execute(cluster_->controller_address(), spec_));
  ASSERT_EQ(broadcast.state(), v1::OPERATION_STATE_COMMITTED) << broadcast.ShortDebugString();
  ExpectDestinations(1);
  ASSERT_EQ(broadcast.report().broadcast_groups_size(), 1);
  const v1::BroadcastGroup& group = broadcast.report().broadcast_groups(0);
  EXPECT_EQ(group.devices(), "node-0.1,node-1.1-2");
  EXPECT_LT(group.broadcast_seconds(), group.relay_seconds());
  ExpectCommits(2);  // on the communicator that is there
  spec_.set_no_broadcasts(true);
  ExpectCommits(3);
  spec_.set_no_broadcasts(false);
  ExpectCommits(4);
}

// Every tensor of a destination lies somewhere in an allocation of a user process, which keeps
// nothing but the mapping of it.
TEST_F(GpuTest, TensorsArriveInAllocationsThatAreLent) {
  Start();
  MakeCase();
  spec_.mutable_destination()->set_storage("lent");
  spec_.set_binding(v1::BINDING_MODE_IN_PLACE);
  std::vector<LentTiles> lent;
  for (const GpuTiles& destination : destinations_) lent.push_back(Lend(destination));
  for (const uint8_t version : {1, 2}) {
    FillSources(version);
    ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                         Execute(cluster_->controller_address(), spec_));
    ASSERT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED) << operation.ShortDebugString();
    for (const LentTiles& tiles : lent) tiles.Expect(manifest_, version);
  }
  spec_.set_binding(v1::BINDING_MODE_SHADOW);
  ASSERT_OK_AND_ASSIGN(const v1::Operation refused, Execute(cluster_->controller_address(), spec_));
  EXPECT_THAT(refused.error(), HasSubstr("expected an operation in place, found shadow"));
}

TEST_F(GpuTest, AProcessThatIsKilledFailsItsReplicaAndTheNextOperationWorks) {
  Start();
  MakeCase();
  ExpectCommits(1);
  FillSources(2);
  RunningReshard running(cluster_->controller_address(), spec_);
  ASSERT_OK(running.WaitUntilRunning());
  const pid_t process = ProcessOf(3);
  ASSERT_NE(process, 0);
  ASSERT_EQ(kill(process, SIGKILL), 0);
  const RealClock clock;
  const absl::Duration begin = clock.Monotonic();
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, running.Result());
  EXPECT_LE(clock.Monotonic() - begin, kGpuLossMax);
  EXPECT_THAT(operation.error(), HasSubstr(StandInUuid(3)));
  ASSERT_TRUE(WaitUntil(kGpuArriveMax, [] { return ProcessOf(3) != 0; }));
  ASSERT_TRUE(WaitUntil(kGpuArriveMax, [&] {
    const absl::StatusOr<double> up =
        cluster_->Metric("node-1", "crossmesh_worker_gpus", R"(state="up")");
    return up.ok() && *up == 2;
  }));
  // The sources have survived: they are not filled again.
  ASSERT_OK_AND_ASSIGN(const v1::Operation next, Execute(cluster_->controller_address(), spec_));
  ASSERT_EQ(next.state(), v1::OPERATION_STATE_COMMITTED) << next.ShortDebugString();
  ExpectDestinations(2);
}

TEST_F(GpuTest, AWorkerThatWasOutOfSightIsBackWithItsGpus) {
  Start();
  MakeCase();
  ExpectCommits(1);
  cluster_->Signal("node-1", SIGSTOP);
  ASSERT_OK(cluster_->WaitForWorker("node-1", v1::WORKER_STATE_LOST));
  cluster_->Signal("node-1", SIGCONT);
  ASSERT_OK(cluster_->WaitForAllWorkers());
  // Its GPUs' processes have been there all the time, with their communicators.
  ExpectCommits(2);
}

TEST_F(GpuTest, WithoutADriverAWorkerHasHostMemoryAlone) {
  Start("libcrossmesh-no-driver.so");
  ASSERT_OK_AND_ASSIGN(const v1::Worker worker, cluster_->GetWorker("node-0"));
  EXPECT_EQ(worker.devices(), "node-0.0");
  ASSERT_OK_AND_ASSIGN(MemoryClient memory, cluster_->Memory("node-0"));
  EXPECT_OK(memory.Create("training", "node-0.0", 100));
  EXPECT_THAT(memory.CreateOnGpu("training", "node-0.1", 100),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("libcrossmesh-no-driver.so")));
}

}  // namespace
}  // namespace crossmesh
