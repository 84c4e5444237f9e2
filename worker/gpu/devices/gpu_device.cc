#include "worker/gpu/devices/gpu_device.h"

#include "common/base/log.h"
#include "common/wire/worker_part_codec.h"

#include <algorithm>
#include <utility>
#include <variant>

#include <absl/strings/str_cat.h>

namespace crossmesh {

GpuDevice::GpuDevice(EventLoop& loop, const Clock& clock, Options options, Listener& listener)
    : device_(std::move(options.device)),
      gpu_(options.process.gpu),
      listener_(listener),
      process_(loop, clock, std::move(options.process), *this),
      arenas_(loop, gpu_, process_) {}

void GpuDevice::Stop() {
  process_.Stop();
  arenas_.Close();
}

void GpuDevice::GiveUp(const absl::Status& why) {
  state_ = State::kGivenUp;
  cause_ = why;
  arenas_.SetAvailable(NotUp());
}

RankName GpuDevice::rank() const {
  return {.gpu = gpu_, .incarnation = state_ == State::kUp ? preflight_->rank.incarnation : 0};
}

void GpuDevice::Prepare(const WorkerPart& part, absl::AnyInvocable<void(absl::Status)> done) {
  if (HasPart(part.digest())) return done(absl::OkStatus());
  const Digest digest = part.digest();
  Call(GpuRequest::PreparePart{.digest = digest, .part = ToProto(part).SerializeAsString()},
       [this, digest,
        done = std::move(done)](const absl::StatusOr<GpuProcess::Reply>& reply) mutable {
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

void GpuDevice::Run(GpuRequest::RunTask task,
                    absl::AnyInvocable<void(absl::StatusOr<TaskReport>)> done) {
  const TaskKey key = task.key;
  moved_bytes_[key] = 0;
  Call(std::move(task),
       [this, key, done = std::move(done)](absl::StatusOr<GpuProcess::Reply> reply) mutable {
         moved_bytes_.erase(key);
         if (!reply.ok()) return done(reply.status());
         if (auto* report = std::get_if<TaskReport>(&reply->result)) {
           return done(std::move(*report));
         }
         done(absl::InternalError(
             absl::StrCat("process of GPU ", gpu_, ": expected a report of a task, found none")));
       });
}

std::optional<int64_t> GpuDevice::MovedBytes(const TaskKey& key) const {
  const auto found = moved_bytes_.find(key);
  if (found == moved_bytes_.end()) return std::nullopt;
  return found->second;
}

void GpuDevice::OnUp(const PreflightReport& preflight) {
  preflight_ = preflight;
  ChangeTo(State::kUp, absl::OkStatus());
}

void GpuDevice::OnDown(const absl::Status& why) {
  parts_.clear();
  ChangeTo(State::kDown, why);
}

void GpuDevice::OnGivenUp(const absl::Status& why) { ChangeTo(State::kGivenUp, why); }

void GpuDevice::ChangeTo(State state, const absl::Status& cause) {
  state_ = state;
  cause_ = cause;
  arenas_.SetAvailable(state == State::kUp ? absl::OkStatus() : NotUp());
  listener_.OnGpuChange(*this);
}

absl::Status GpuDevice::NotUp() const {
  return absl::UnavailableError(absl::StrCat("GPU ", gpu_, " is not up: ", cause_.message()));
}

void GpuDevice::OnTaskProgress(const GpuNotice::TaskProgress& progress) {
  const auto found = moved_bytes_.find(progress.key);
  if (found != moved_bytes_.end()) found->second = progress.moved_bytes;
}

void GpuDevice::OnCommunicatorLost(const GpuNotice::CommunicatorLost& lost) {
  LogWarning(
      "communicator_lost",
      {{"gpu", gpu_}, {"communicator", lost.key.ToString()}, {"cause", lost.cause.ToString()}});
}

}  // namespace crossmesh
