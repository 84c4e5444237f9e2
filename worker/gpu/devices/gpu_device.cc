#include "worker/gpu/devices/gpu_device.h"

#include "common/communicators/gpu_share.h"
#include "worker/gpu/protocol/gpu_message.h"

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

void GpuDevice::CancelTask(const TaskKey& key, const absl::Status& why) {
  v1::GpuRequest request;
  *request.mutable_cancel_task()->mutable_key() = ToProto(key);
  *request.mutable_cancel_task()->mutable_cause() = ToProto(why);
  process_.Call(std::move(request), [](const absl::StatusOr<GpuProcess::Reply>& /*reply*/) {});
}

GpuProcess::Handlers GpuDevice::ProcessHandlers() {
  return {.on_up =
              [this](const PreflightReport& preflight) {
                incarnation_ = preflight.rank.incarnation;
                has_m2n_ = preflight.m2n;
                ChangeTo(State::kUp, absl::OkStatus());
              },
          .on_arena_lost = [this](ArenaId arena,
                                  const absl::Status& why) { arenas_.MarkLost(arena, why); },
          .on_down = [this](const absl::Status& why) { ChangeTo(State::kDown, why); },
          .on_given_up = [this](const absl::Status& why) { ChangeTo(State::kGivenUp, why); }};
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

}  // namespace crossmesh
