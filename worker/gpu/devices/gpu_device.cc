#include "worker/gpu/devices/gpu_device.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/communicators/gpu_share.h"
#include "common/plan/worker_part.h"
#include "common/wire/communicator_codec.h"
#include "common/wire/worker_part_codec.h"
#include "worker/gpu/protocol/gpu_message.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

GpuDevice::GpuDevice(EventLoop& loop, const Clock& clock, Options options, OnChange on_change)
    : device_(std::move(options.device)),
      gpu_(options.process.gpu),
      on_change_(std::move(on_change)),
      process_(loop, clock, std::move(options.process), ProcessHandlers()),
      arenas_(loop, UuidOf(gpu_), process_) {}

void GpuDevice::StopAll(std::span<GpuDevice* const> gpus) {
  std::vector<GpuProcess*> processes;
  for (GpuDevice* gpu : gpus) processes.push_back(&gpu->process_);
  GpuProcess::StopAll(processes);
  for (GpuDevice* gpu : gpus) gpu->arenas_.Close();
}

void GpuDevice::GiveUp(const absl::Status& why) {
  state_ = State::kGivenUp;
  cause_ = why;
  arenas_.SetAvailable(NotUp());
}

std::string GpuDevice::name() const {
  return absl::StrCat("device ", ToString(device_), " (", gpu_, ")");
}

RankName GpuDevice::rank() const {
  return {.gpu = gpu_, .incarnation = state_ == State::kUp ? incarnation_ : 0};
}

void GpuDevice::Prepare(const WorkerPart& part, absl::AnyInvocable<void(absl::Status)> done) {
  // The process keeps twice as many parts as are remembered here, so that it still has them.
  if (HasPart(part.digest())) return done(absl::OkStatus());
  const Digest digest = part.digest();
  v1::GpuRequest request;
  request.mutable_prepare_part()->set_digest(digest.ToString());
  request.mutable_prepare_part()->set_part(ToProto(part).SerializeAsString());
  process_.Call(std::move(request), [this, digest, done = std::move(done)](
                                        const absl::StatusOr<GpuProcess::Reply>& reply) mutable {
    // Several tasks may have sent it meanwhile.
    if (reply.ok() && !HasPart(digest)) {
      parts_.insert(parts_.begin(), digest);
      parts_.resize(std::min(parts_.size(), kPartsMax));
    }
    done(reply.status());
  });
}

bool GpuDevice::HasPart(const Digest& digest) {
  const auto found = std::ranges::find(parts_, digest);
  if (found == parts_.end()) return false;
  std::rotate(parts_.begin(), found, found + 1);
  return true;
}

void GpuDevice::Run(v1::GpuRequest::RunTask task,
                    absl::AnyInvocable<void(absl::StatusOr<TaskReport>)> done) {
  const TaskKey key = FromProto(task.key());
  moved_bytes_[key] = 0;
  v1::GpuRequest request;
  *request.mutable_run_task() = std::move(task);
  process_.Call(std::move(request), [this, key, done = std::move(done)](
                                        const absl::StatusOr<GpuProcess::Reply>& reply) mutable {
    moved_bytes_.erase(key);
    if (!reply.ok()) return done(reply.status());
    done(ReportFromProto(reply->answer.report()));
  });
}

void GpuDevice::CancelTask(const TaskKey& key, const absl::Status& why) {
  v1::GpuRequest request;
  *request.mutable_cancel_task()->mutable_key() = ToProto(key);
  *request.mutable_cancel_task()->mutable_cause() = ToProto(why);
  process_.Call(std::move(request), [](const absl::StatusOr<GpuProcess::Reply>& /*reply*/) {});
}

std::optional<int64_t> GpuDevice::MovedBytes(const TaskKey& key) const {
  const auto found = moved_bytes_.find(key);
  if (found == moved_bytes_.end()) return std::nullopt;
  return found->second;
}

GpuProcess::Handlers GpuDevice::ProcessHandlers() {
  return {.on_up =
              [this](const PreflightReport& preflight) {
                incarnation_ = preflight.rank.incarnation;
                ChangeTo(State::kUp, absl::OkStatus());
              },
          .on_arena_lost = [this](ArenaId arena,
                                  const absl::Status& why) { arenas_.MarkLost(arena, why); },
          .on_down =
              [this](const absl::Status& why) {
                parts_.clear();  // they went with the process
                ChangeTo(State::kDown, why);
              },
          .on_given_up = [this](const absl::Status& why) { ChangeTo(State::kGivenUp, why); },
          .on_notice = [this](const v1::GpuNotice& notice) { return OnNotice(notice); }};
}

void GpuDevice::ChangeTo(State state, const absl::Status& cause) {
  const State before = std::exchange(state_, state);
  cause_ = cause;
  arenas_.SetAvailable(state == State::kUp ? absl::OkStatus() : NotUp());
  // One that is down is tried again and again.
  if (state != before) on_change_(*this);
}

absl::Status GpuDevice::NotUp() const {
  return absl::UnavailableError(absl::StrCat("GPU ", gpu_, " is not up: ", cause_.message()));
}

absl::Status GpuDevice::OnNotice(const v1::GpuNotice& notice) {
  if (notice.has_task_progress()) {
    const int64_t moved = notice.task_progress().moved_bytes();
    RETURN_IF_ERROR(CheckNumber("task_progress.moved_bytes", moved, 0));
    const auto found = moved_bytes_.find(FromProto(notice.task_progress().key()));
    if (found != moved_bytes_.end()) found->second = moved;
  } else if (notice.has_communicator_lost()) {
    // Tasks that use it end by themselves; others find it gone.
    ASSIGN_OR_RETURN(const CommunicatorKey key, FromProto(notice.communicator_lost().key()));
    const absl::Status cause = CauseFromProto(notice.communicator_lost().cause());
    LogWarning("communicator_lost", {{"gpu", gpu_},
                                     {"communicator", key.ToString()},
                                     {"cause", cause.ToString()},
                                     {"output", process_.LastOutput()}});
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
