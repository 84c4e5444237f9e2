#include "worker/gpu/tasks/testing/bridged_workers.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/plan/packed_segments.h"
#include "common/plan/worker_part.h"
#include "worker/executor/prepared_part.h"
#include "worker/transport/testing/inprocess_transport.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kGuardBytes = 64;
constexpr char kGuard = '\xA5';

}  // namespace

BridgedWorkers::BridgedWorkers(const std::vector<std::string>& devices) : gpus_(devices) {
  for (int32_t i = 0; i < std::ssize(workers_); ++i) {
    Worker& worker = workers_[i];
    worker.executor = Executor::Create(gpus_.loop(), {});
    auto transport = InProcessTransport::Create(fabric_, *worker.executor);
    CHECK_OK(transport);
    worker.transport = *std::move(transport);
    CHECK_OK(worker.executor->Attach(*worker.transport));
    gpus_.loop().AddSource(*worker.transport);
    worker.runner = std::make_unique<CourseTaskRunner>(
        CourseTaskRunner::Ports{.loop = gpus_.loop(),
                                .replays = worker.executor->replays(),
                                .others = *worker.executor,
                                .counters = worker.courses,
                                .make_memory = [this, i](const DeviceId& device, ByteCount bytes) {
                                  return MakeArrays(i, device, bytes);
                                }});
  }
}

absl::StatusOr<std::shared_ptr<Arena>> BridgedWorkers::MakeArrays(int32_t worker,
                                                                  const DeviceId& device,
                                                                  ByteCount bytes) {
  if (worker == 0 && gpus_.devices().Has(device)) return bridge_->MakeBounceBuffer(bytes);
  return Arena::Create("arrays", bytes);
}

BridgedWorkers::~BridgedWorkers() {
  for (const Worker& worker : workers_) gpus_.loop().RemoveSource(*worker.transport);
}

absl::Status BridgedWorkers::Open() {
  RETURN_IF_ERROR(gpus_.Open());
  bridge_ = std::make_unique<BridgedTaskRunner>(
      BridgedTaskRunner::Ports{
          .loop = gpus_.loop(),
          .gpus = gpus_.devices(),
          .on_host = *workers_[0].runner,
          .make_arena = [](ByteCount bytes) { return Arena::Create("bounce_buffer", bytes); }},
      BridgedTaskRunner::Options{.bounce_bytes_max = ByteCount(kBounceBytesMax)});
  return absl::OkStatus();
}

TaskRunner& BridgedWorkers::runner(int32_t worker) {
  if (worker == 0) return *bridge_;
  return *workers_[worker].runner;
}

absl::StatusOr<std::unique_ptr<MixedMemory>> MixedMemory::Create(
    const Plan& plan, std::vector<int32_t> worker_of_device, BridgedWorkers& workers,
    absl::FunctionRef<void(const TileMemory&)> fill) {
  auto memory = absl::WrapUnique(new MixedMemory(plan, std::move(worker_of_device), workers));
  fill(memory->host_);
  const std::vector<DeviceId>& devices = plan.tensors().devices();
  for (DeviceRank device = 0; device < std::ssize(devices); ++device) {
    if (!workers.gpus().devices().Has(devices[device])) continue;
    CHECK_EQ(memory->worker_of_device_[device], 0);
    RETURN_IF_ERROR(memory->MoveToGpu(device));
  }
  return memory;
}

absl::Status MixedMemory::MoveToGpu(DeviceRank device) {
  ASSIGN_OR_RETURN(sources_[device], PlaceTiles(Side::kSource, device));
  ASSIGN_OR_RETURN(destinations_[device], PlaceTiles(Side::kDestination, device));
  return absl::OkStatus();
}

absl::StatusOr<BoundTiles> MixedMemory::PlaceTiles(Side side, DeviceRank device) {
  const BoundTiles& host_tiles = host_.tiles(side, device);
  GpuArena made;
  std::string image(kGuardBytes, kGuard);
  std::vector<int64_t> offsets(host_tiles.tensor.size(), -1);
  for (size_t tensor = 0; tensor < host_tiles.tensor.size(); ++tensor) {
    std::byte* const host_tile = host_tiles.tensor[tensor];
    if (host_tile == nullptr || IsInPlace(side, device, tensor)) continue;
    offsets[tensor] = std::ssize(image);
    made.tiles.push_back({.host_tile = host_tile,
                          .offset = offsets[tensor],
                          .bytes = TileBytes(side, device, tensor)});
    image.append(reinterpret_cast<const char*>(host_tile), made.tiles.back().bytes);
    image.append(kGuardBytes, kGuard);
  }
  ASSIGN_OR_RETURN(made.arena, workers_.gpus().MakeArena(
                                   ToString(plan_.tensors().devices()[device]), std::ssize(image)));
  StandInGpus::Write(*made.arena, image);
  BoundTiles placed;
  for (size_t tensor = 0; tensor < offsets.size(); ++tensor) {
    std::byte* tile = offsets[tensor] < 0 ? nullptr : made.arena->bytes().data() + offsets[tensor];
    if (IsInPlace(side, device, tensor)) tile = sources_.at(device).tensor[tensor];
    placed.tensor.push_back(tile);
  }
  arenas_.push_back(std::move(made));
  return placed;
}

bool MixedMemory::IsInPlace(Side side, DeviceRank device, size_t tensor) const {
  const std::byte* const host_tile = host_.tiles(side, device).tensor[tensor];
  return side == Side::kDestination && host_tile != nullptr &&
         host_tile == host_.tiles(Side::kSource, device).tensor[tensor];
}

int64_t MixedMemory::TileBytes(Side side, DeviceRank device, size_t tensor) const {
  const TileMap map(plan_.tensors(), plan_.slicing(), side, device);
  return map.tile_bytes(plan_.tensors().group_of_tensor()[tensor]);
}

TaskSpec MixedMemory::SpecOf(int32_t worker, const TaskKey& key) const {
  std::vector<std::vector<DeviceId>> devices(2);
  for (size_t rank = 0; rank < worker_of_device_.size(); ++rank) {
    devices[worker_of_device_[rank]].push_back(plan_.tensors().devices()[rank]);
  }
  auto parts = CutParts(plan_, devices);
  CHECK_OK(parts);
  TaskSpec spec{.key = key, .token_high = 5, .token_low = 6, .stall_limit = absl::Seconds(30)};
  auto part = PreparedPart::Create(std::make_shared<const WorkerPart>(std::move((*parts)[worker])));
  CHECK_OK(part);
  spec.part = *std::move(part);
  for (int32_t peer = 0; peer < 2; ++peer) {
    spec.peers.push_back({.worker = absl::StrCat("w", peer), .address = workers_.address(peer)});
  }
  for (DeviceRank rank = 0; rank < std::ssize(worker_of_device_); ++rank) {
    if (worker_of_device_[rank] != worker) {
      spec.peer_of_device[rank] = worker_of_device_[rank];
      continue;
    }
    const auto on_gpu = sources_.find(rank);
    const bool is_gpu = on_gpu != sources_.end();
    spec.sources[rank] = is_gpu ? on_gpu->second : host_.tiles(Side::kSource, rank);
    spec.destinations[rank] =
        is_gpu ? destinations_.at(rank) : host_.tiles(Side::kDestination, rank);
  }
  return spec;
}

absl::Status MixedMemory::Fetch() {
  for (const GpuArena& arena : arenas_) {
    std::string found = StandInGpus::Read(*arena.arena);
    for (const PlacedTile& tile : arena.tiles) {
      std::memcpy(tile.host_tile, found.data() + tile.offset, tile.bytes);
      std::fill_n(found.begin() + tile.offset, tile.bytes, kGuard);
    }
    if (std::ranges::all_of(found, [](char byte) { return byte == kGuard; })) continue;
    return absl::DataLossError("memory of a GPU beside tiles was written");
  }
  return absl::OkStatus();
}

absl::StatusOr<const TileMemory*> MixedMemory::InHostMemory() {
  RETURN_IF_ERROR(Fetch());
  return &host_;
}

absl::Status MixedMemory::CheckDestination(DeviceRank device) {
  RETURN_IF_ERROR(Fetch());
  return host_.CheckDestination(device);
}

absl::Status MixedMemory::CheckUntouched() {
  RETURN_IF_ERROR(Fetch());
  return host_.CheckUntouched();
}

}  // namespace crossmesh
