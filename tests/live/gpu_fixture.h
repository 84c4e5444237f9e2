// Two workers with two GPUs each, of the stand-in, whose memory is files in memory.

#pragma once

#include "client/cli/storage_tiles.h"
#include "client/client.h"
#include "common/memory_protocol/piece_list.h"
#include "common/plan/plan.h"
#include "common/plan/storage_layout.h"
#include "common/testing/status_matchers.h"
#include "tests/live/live_cluster.h"
#include "tests/live/reshard_case.h"
#include "tests/live/running_reshard.h"
#include "tests/standin/stand_in.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace crossmesh {

inline constexpr int64_t kGpuBytes = 64 << 20;
inline constexpr int kGpus = 4;
inline constexpr char kDevices[] = "node-0.1-2,node-1.1-2";
inline constexpr absl::Duration kGpuArriveMax = absl::Seconds(60);
// From the end of a GPU's process to the failure of what it was to receive.
inline constexpr absl::Duration kGpuLossMax = absl::Seconds(10);

// Those of GPU `number`; 0 when there is none.
inline pid_t ProcessOf(int number) {
  std::error_code error;
  for (const std::filesystem::directory_entry& entry :
       std::filesystem::directory_iterator("/proc", error)) {
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
struct LiveGpuTiles {
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

class GpuFixture : public testing::Test {
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
      std::vector<std::string>& flags = options.flags_of_daemon[worker];
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
  LiveGpuTiles Create(Side side, int number, const std::string& storage) {
    const DeviceId device = DeviceOf(number);
    LiveGpuTiles made{.number = number};
    made.tiles = std::make_unique<StorageTiles>(*tensors_, side, *tensors_->FindDevice(device));
    absl::StatusOr<MemoryClient> memory = cluster_->Memory(device.host);
    EXPECT_OK(memory);
    auto created = memory->CreateOnGpu(storage, ToString(device), made.tiles->bytes());
    EXPECT_OK(created);
    if (created.ok()) made.storage = *std::move(created);
    return made;
  }
  // As storage "lent". The allocation is memory of the GPU as any process has it: by descriptor.
  LentTiles Lend(const LiveGpuTiles& destination) {
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
    for (const LiveGpuTiles& source : sources_) {
      source.Map([&](std::span<std::byte> memory) {
        source.tiles->Fill(VersionedValues(manifest_, version), memory, done_bytes);
      });
    }
  }
  void ExpectDestinations(uint8_t version) {
    std::atomic<int64_t> done_bytes = 0;
    for (LiveGpuTiles& destination : destinations_) {
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
      EXPECT_THAT(
          worker.gpu_libraries(),
          ElementsAre(AllOf(testing::HasSubstr("CUDA driver"), testing::HasSubstr("stand-in")),
                      AllOf(testing::HasSubstr("NCCL"), testing::HasSubstr("stand-in"))));
    }
    ExpectDestinations(version);
  }

  Manifest manifest_ = TensorsOf(kGpuBytes);
  std::unique_ptr<LiveCluster> cluster_;
  v1::ReshardSpec spec_;
  std::unique_ptr<const TensorTable> tensors_;
  std::vector<LiveGpuTiles> sources_;
  std::vector<LiveGpuTiles> destinations_;
};

}  // namespace crossmesh
