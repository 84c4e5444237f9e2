#include "worker/gpu/loop/gpu_tasks.h"

#include "common/base/status_macros.h"
#include "common/plan/packed_segments.h"
#include "common/wire/communicator_codec.h"
#include "common/wire/worker_part_codec.h"
#include "worker/executor/prepared_part.h"
#include "worker/gpu/communicators/registered_staging.h"
#include "worker/gpu/compiler/compiled_part.h"
#include "worker/gpu/executor/gpu_binding.h"
#include "worker/gpu/executor/gpu_executor.h"
#include "worker/gpu/executor/gpu_legs.h"
#include "worker/gpu/loop/communicator_orders.h"
#include "worker/gpu/loop/gpu_arenas.h"
#include "worker/gpu/protocol/gpu_message.h"

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
                                               const v1::GpuRequest::RunTask& task,
                                               const CommunicatorKey& communicator) {
  if (task.devices_size() != std::ssize(communicator.ranks)) {
    return Malformed("run_task.devices",
                     absl::StrCat(communicator.ranks.size(), ", as of the communicator"),
                     absl::StrCat(task.devices_size()));
  }
  std::vector<int> ranks(tensors.devices().size(), -1);
  for (int rank = 0; rank < task.devices_size(); ++rank) {
    const DeviceRank device = task.devices(rank);
    if (device < 0 || device >= std::ssize(ranks)) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank,
                                                     ": expected a device from 0 to ",
                                                     std::ssize(ranks) - 1, ", found ", device));
    }
    ranks[device] = rank;
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

GpuTasks::GpuTasks(const Ports& ports) : ports_(ports) {}

GpuTasks::~GpuTasks() = default;

absl::StatusOr<GpuTasks::Part*> GpuTasks::PartOf(const v1::GpuRequest::RunTask& task) {
  ASSIGN_OR_RETURN(const Digest digest, ParseDigest("run_task.part_digest", task.part_digest()));
  if (const auto known = parts_.find(digest); known != parts_.end()) {
    known->second.used = ++uses_;
    return &known->second;
  }
  if (task.part().empty()) return nullptr;
  ASSIGN_OR_RETURN(auto part, ParseWorkerPart(task.part(), digest));
  const size_t devices = part->spec().devices.size();
  if (devices != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("part ", digest.ToString(), ": expected one device, found ", devices));
  }
  ASSIGN_OR_RETURN(auto prepared, PreparedPart::Create(std::move(part)));
  if (parts_.size() >= kPartsMax) DropOldest();
  Part& kept = parts_[digest];
  kept = {.part = std::move(prepared), .last = nullptr, .used = ++uses_};
  return &kept;
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

void GpuTasks::Begin(const v1::GpuRequest& request, Done done) {
  const v1::GpuRequest::RunTask& task = request.run_task();
  const absl::StatusOr<Part*> part = PartOf(task);
  if (!part.ok()) return done(part.status());
  if (*part == nullptr) {
    v1::GpuNotice::Answer answer;
    answer.mutable_need_part();
    return done(std::move(answer));
  }
  absl::StatusOr<std::shared_ptr<const Bound>> bound = Start(**part, task);
  if (!bound.ok()) return done(bound.status());
  // Soon enough: the executor never calls its observer from inside Start.
  running_[FromProto(task.key())] = {
      .bound = *std::move(bound), .request = request.id(), .done = std::move(done)};
}

absl::StatusOr<std::shared_ptr<const GpuTasks::Bound>> GpuTasks::Start(
    Part& part, const v1::GpuRequest::RunTask& task) {
  ASSIGN_OR_RETURN(const CommunicatorKey key, FromProto(task.communicator()));
  // Before the communicator, which another GPU that lacks it may have ended.
  if (part.part->part().spec().m2n) RETURN_IF_ERROR(ports_.check_m2n());
  Communicator* const communicator = ports_.communicators.Find(key);
  if (communicator == nullptr) {
    return absl::NotFoundError(absl::StrCat("communicator ", key.ToString(), " is not ready here"));
  }
  ASSIGN_OR_RETURN(const absl::Duration deadline, ParseLimit("run_task.deadline", task.deadline()));
  ASSIGN_OR_RETURN(const absl::Duration stall_limit,
                   ParseLimit("run_task.stall_limit", task.stall_limit()));
  ASSIGN_OR_RETURN(std::vector<int> ranks, RanksByDevice(part.part->part().tensors(), task, key));
  ASSIGN_OR_RETURN(std::shared_ptr<const Bound> bound, Bind(part, task));
  RETURN_IF_ERROR(executor_->Start({.key = FromProto(task.key()),
                                    .binding = bound->binding,
                                    .communicator = communicator,
                                    .owner = this,
                                    .ranks = std::move(ranks),
                                    .deadline = deadline,
                                    .stall_limit = stall_limit},
                                   *this));
  return bound;
}

absl::StatusOr<std::shared_ptr<const GpuTasks::Bound>> GpuTasks::Bind(
    Part& part, const v1::GpuRequest::RunTask& task) {
  ASSIGN_OR_RETURN(Places sources, FromProto(task.sources()));
  ASSIGN_OR_RETURN(Places destinations, FromProto(task.destinations()));
  // Same places are the same addresses: an id names one memory as long as the worker runs. To bind
  // anew would compile the part, and copy its boxes to the GPU, once more.
  if (part.last != nullptr && part.last->checksums == task.checksums() &&
      part.last->sources == sources && part.last->destinations == destinations) {
    return part.last;
  }
  auto bound = std::make_shared<Bound>(Bound{.checksums = task.checksums(),
                                             .sources = std::move(sources),
                                             .destinations = std::move(destinations)});
  GpuTiles tiles;
  const DeviceRank device = part.part->part().spec().devices.front();
  ASSIGN_OR_RETURN(tiles.source,
                   AddressesOf(part.part->tiles(Side::kSource, device), bound->sources, *bound));
  ASSIGN_OR_RETURN(tiles.destination, AddressesOf(part.part->tiles(Side::kDestination, device),
                                                  bound->destinations, *bound));
  const CompiledPart::Options options = {
      .staging_bytes = ports_.staging.bytes() - kAgreementBytesMax, .checksums = task.checksums()};
  if (part.part->part().has_courses()) {
    ASSIGN_OR_RETURN(GpuLegs legs, LegsOfCourses(ports_.gpu, part.part, tiles, options));
    ASSIGN_OR_RETURN(bound->binding, executor_->Bind(std::move(legs)));
    // Not kept: its arrays are given back with the task.
    return bound;
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const CompiledPart> compiled,
                   CompiledPart::Create(part.part, options));
  ASSIGN_OR_RETURN(bound->binding, executor_->Bind(std::move(compiled), std::move(tiles)));
  // What is replaced lives on in its runs.
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

void GpuTasks::Cancel(const TaskKey& key, const absl::Status& cause) {
  executor_->Cancel(key, cause);
}

void GpuTasks::OnCommunicatorChange(const Communicator& communicator, CommunicatorState state,
                                    const absl::Status& cause) {
  executor_->OnCommunicatorChange(communicator, state, cause);
}

const absl::Status& GpuTasks::health() const { return executor_->health(); }

void GpuTasks::StopCommunicator(const Communicator& communicator, const absl::Status& why) {
  ports_.communicators.Stop(communicator, why);
}

void GpuTasks::OnTaskDone(const TaskReport& report) {
  const auto found = running_.find(report.key);
  const bool is_m2n = found->second.bound->binding->part().part().spec().m2n;
  Done done = std::move(found->second.done);
  running_.erase(found);
  v1::GpuNotice::Answer answer;
  *answer.mutable_report() = ReportToProto(report);
  answer.mutable_report()->mutable_report()->mutable_gpu_libraries()->Assign(
      ports_.libraries.begin(), ports_.libraries.end());
  if (is_m2n) {
    answer.mutable_report()->mutable_report()->add_gpu_libraries(ports_.m2n_library);
  }
  done(std::move(answer));
}

std::vector<v1::GpuNotice> GpuTasks::Progress() const {
  std::vector<v1::GpuNotice> notices;
  for (const auto& [key, running] : running_) {
    const std::optional<int64_t> moved = executor_->MovedBytes(key);
    if (!moved.has_value()) continue;
    v1::GpuNotice::TaskProgress& progress = *notices.emplace_back().mutable_task_progress();
    progress.set_request(running.request);
    progress.set_moved_bytes(*moved);
  }
  return notices;
}

}  // namespace crossmesh
