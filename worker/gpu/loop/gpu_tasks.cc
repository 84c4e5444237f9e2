#include "worker/gpu/loop/gpu_tasks.h"

#include "common/base/status_macros.h"
#include "common/plan/packed_segments.h"
#include "common/wire/worker_part_codec.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Of the staging, for what ranks agree on before a task.
constexpr int64_t kAgreementBytesMax = int64_t{256} << 10;

// Ranks of the communicator, by device of the plan; -1: takes no part.
absl::StatusOr<std::vector<int>> RanksByDevice(const TensorTable& tensors,
                                               const std::vector<DeviceRank>& devices) {
  std::vector<int> ranks(tensors.devices().size(), -1);
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    const DeviceRank device = devices[rank];
    if (device < 0 || device >= std::ssize(ranks)) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank,
                                                     ": expected a device from 0 to ",
                                                     std::ssize(ranks) - 1, ", found ", device));
    }
    ranks[device] = static_cast<int>(rank);
  }
  return ranks;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuTasks>> GpuTasks::Create(const Ports& ports) {
  auto tasks = absl::WrapUnique(new GpuTasks(ports));
  ASSIGN_OR_RETURN(tasks->executor_, GpuExecutor::Create(ports.loop, ports.gpu, ports.staging,
                                                         GpuExecutor::Options()));
  return tasks;
}

absl::Status GpuTasks::Prepare(const GpuRequest::PreparePart& request) {
  if (const auto known = parts_.find(request.digest); known != parts_.end()) {
    known->second.used = ++uses_;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(auto part, ParseWorkerPart(request.part, request.digest));
  const size_t devices = part->spec().devices.size();
  if (devices != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("part ", request.digest.ToString(), ": expected one device, found ", devices));
  }
  ASSIGN_OR_RETURN(auto prepared, PreparedPart::Create(std::move(part)));
  if (parts_.size() >= kPartsMax) DropOldest();
  parts_[request.digest] = {.part = std::move(prepared), .last = nullptr, .used = ++uses_};
  return absl::OkStatus();
}

void GpuTasks::DropOldest() {
  parts_.erase(
      std::ranges::min_element(parts_, {}, [](const auto& entry) { return entry.second.used; }));
}

void GpuTasks::Forget(ArenaId arena) {
  const auto uses = [arena](const Places& places) {
    return std::ranges::find(places, arena, &TilePlace::arena) != places.end();
  };
  for (auto& [digest, part] : parts_) {
    if (part.last == nullptr) continue;
    if (uses(part.last->sources) || uses(part.last->destinations)) part.last = nullptr;
  }
}

absl::Status GpuTasks::Begin(uint64_t request, const GpuRequest::RunTask& run) {
  const auto part = parts_.find(run.part);
  if (part == parts_.end()) {
    return absl::NotFoundError(absl::StrCat("part ", run.part.ToString(), " is not here"));
  }
  Communicator* const communicator = ports_.communicators.Find(run.communicator);
  if (communicator == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("communicator ", run.communicator.ToString(), " is not ready here"));
  }
  part->second.used = ++uses_;
  ASSIGN_OR_RETURN(std::vector<int> ranks,
                   RanksByDevice(part->second.part->part().tensors(), run.devices));
  ASSIGN_OR_RETURN(std::shared_ptr<const Bound> bound, Bind(part->second, run));
  RETURN_IF_ERROR(executor_->Start({.key = run.key,
                                    .binding = bound->binding,
                                    .communicator = communicator,
                                    .owner = this,
                                    .ranks = std::move(ranks),
                                    .deadline = run.deadline,
                                    .stall_limit = run.stall_limit},
                                   *this));
  requests_[run.key] = {.request = request, .bound = std::move(bound)};
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const GpuTasks::Bound>> GpuTasks::Bind(
    Part& part, const GpuRequest::RunTask& run) {
  if (part.last != nullptr && part.last->checksums == run.checksums &&
      part.last->sources == run.sources && part.last->destinations == run.destinations) {
    return part.last;
  }
  ASSIGN_OR_RETURN(
      std::shared_ptr<const CompiledPart> program,
      CompiledPart::Create(part.part, {.staging_bytes = ports_.staging.bytes() - kAgreementBytesMax,
                                       .checksums = run.checksums}));
  auto bound = std::make_shared<Bound>(
      Bound{.checksums = run.checksums, .sources = run.sources, .destinations = run.destinations});
  GpuTiles tiles;
  const DeviceRank device = program->device();
  ASSIGN_OR_RETURN(tiles.source,
                   AddressesOf(part.part->tiles(Side::kSource, device), run.sources, *bound));
  ASSIGN_OR_RETURN(tiles.destination, AddressesOf(part.part->tiles(Side::kDestination, device),
                                                  run.destinations, *bound));
  ASSIGN_OR_RETURN(bound->binding, executor_->Bind(std::move(program), tiles));
  part.last = bound;
  return bound;
}

absl::StatusOr<std::vector<uint64_t>> GpuTasks::AddressesOf(const TileMap& tiles,
                                                            const Places& places,
                                                            Bound& bound) const {
  const auto& groups = tiles.tensors().group_of_tensor();
  if (places.size() > groups.size()) {
    return absl::InvalidArgumentError(absl::StrCat("tiles: expected at most ", groups.size(),
                                                   ", as of tensors, found ", places.size()));
  }
  std::vector<uint64_t> addresses(groups.size(), 0);
  for (size_t tensor = 0; tensor < places.size(); ++tensor) {
    const TilePlace& place = places[tensor];
    if (place.arena == ArenaId() || groups[tensor] < 0) continue;
    ASSIGN_OR_RETURN(auto memory, ports_.arenas.Find(place.arena));
    const int64_t bytes = tiles.tile_bytes(groups[tensor]);
    if (bytes > memory->bytes().value() || place.offset > memory->bytes().value() - bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", tensor, ": expected ", bytes, " bytes from ", place.offset, " on in arena ",
          place.arena.value(), ", which has ", memory->bytes().value()));
    }
    addresses[tensor] = memory->address() + place.offset;
    if (bound.memory.empty() || bound.memory.back() != memory) bound.memory.push_back(memory);
  }
  return addresses;
}

void GpuTasks::OnTaskDone(const TaskReport& report) {
  const auto running = requests_.find(report.key);
  const uint64_t request = running->second.request;
  requests_.erase(running);
  ports_.listener.OnTaskDone(request, report);
}

std::vector<GpuNotice::TaskProgress> GpuTasks::Progress() const {
  std::vector<GpuNotice::TaskProgress> progress;
  for (const auto& [key, running] : requests_) {
    const std::optional<int64_t> moved = executor_->MovedBytes(key);
    if (moved.has_value()) progress.push_back({.key = key, .moved_bytes = *moved});
  }
  return progress;
}

}  // namespace crossmesh
