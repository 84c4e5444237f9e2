#include "worker/gpu/devices/communicator_proxy.h"

#include "common/wire/communicator_codec.h"
#include "worker/gpu/protocol/gpu_message.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

namespace crossmesh {

void CommunicatorProxy::Admit(const RankName& rank, uint64_t epoch, Admitted admitted) {
  if (epoch < epoch_) {
    return admitted(absl::AbortedError(absl::StrCat("rank ", rank.ToString(), ": expected epoch ",
                                                    epoch_, " or later, found ", epoch)));
  }
  if (epoch > epoch_) {
    epoch_ = epoch;
    StopThoseMade();
  }
  auto find = [this, rank, admitted = std::move(admitted)]() mutable {
    admitted(gpus_.FindRank(rank));
  };
  // Only when it is let in: by then another process may drive the GPU.
  if (stopping_ == 0) return find();
  waiting_.push_back(std::move(find));
}

void CommunicatorProxy::StopThoseMade() {
  const absl::Status cause =
      absl::AbortedError(absl::StrCat("a controller of epoch ", epoch_, " has begun"));
  for (const auto& [rank, key] : std::exchange(made_, {})) {
    const absl::StatusOr<GpuDevice*> gpu = gpus_.FindRank(rank);
    if (!gpu.ok()) continue;  // gone with its process
    ++stopping_;
    // After any answer it is gone, or its process will be.
    v1::GpuRequest request;
    *request.mutable_stop_communicator()->mutable_key() = ToProto(key);
    *request.mutable_stop_communicator()->mutable_cause() = ToProto(cause);
    (*gpu)->process().Call(
        std::move(request),
        [this](const absl::StatusOr<GpuProcess::Reply>& /*reply*/) { OnStopped(); });
  }
}

void CommunicatorProxy::OnStopped() {
  if (--stopping_ > 0) return;
  for (auto& task : std::exchange(waiting_, {})) task();
}

void CommunicatorProxy::Forget(const RankName& rank, const CommunicatorKey& key) {
  std::erase(made_, Made(rank, key));
}

// One that is refused says nothing of what an earlier order has made, which goes on.
void CommunicatorProxy::ForgetOrder(const Made& made) {
  const auto found = std::ranges::find(made_, made);
  if (found != made_.end()) made_.erase(found);
}

void CommunicatorProxy::GetPreflight(
    const RankName& rank, uint64_t epoch,
    absl::AnyInvocable<void(absl::StatusOr<PreflightReport>)> done) {
  Admit(rank, epoch, [done = std::move(done)](absl::StatusOr<GpuDevice*> gpu) mutable {
    if (!gpu.ok()) return done(gpu.status());
    v1::GpuRequest request;
    request.mutable_take_preflight();
    (*gpu)->process().Call(
        std::move(request),
        [done = std::move(done)](const absl::StatusOr<GpuProcess::Reply>& reply) mutable {
          if (!reply.ok()) return done(reply.status());
          done(FromProto(reply->answer.preflight()));
        });
  });
}

void CommunicatorProxy::MintId(const RankName& rank, uint64_t epoch,
                               absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) {
  Admit(rank, epoch, [done = std::move(done)](absl::StatusOr<GpuDevice*> gpu) mutable {
    if (!gpu.ok()) return done(gpu.status());
    v1::GpuRequest request;
    request.mutable_mint_communicator_id();
    (*gpu)->process().Call(
        std::move(request),
        [done = std::move(done)](const absl::StatusOr<GpuProcess::Reply>& reply) mutable {
          if (!reply.ok()) return done(reply.status());
          done(reply->answer.communicator_id());
        });
  });
}

void CommunicatorProxy::Create(const RankOfKey& at, v1::GpuRequest::CreateCommunicator order,
                               absl::AnyInvocable<void(absl::StatusOr<int64_t>)> done) {
  Admit(at.rank, at.key.epoch,
        [this, at, order = std::move(order),
         done = std::move(done)](absl::StatusOr<GpuDevice*> gpu) mutable {
          if (!gpu.ok()) return done(gpu.status());
          // Before the answer: an order on its way has to be stopped as well by a later epoch.
          made_.emplace_back(at.rank, at.key);
          v1::GpuRequest request;
          *request.mutable_create_communicator() = std::move(order);
          (*gpu)->process().Call(std::move(request),
                                 [this, at, done = std::move(done)](
                                     const absl::StatusOr<GpuProcess::Reply>& reply) mutable {
                                   if (reply.ok()) return done(reply->answer.communicator_bytes());
                                   ForgetOrder({at.rank, at.key});
                                   done(reply.status());
                                 });
        });
}

void CommunicatorProxy::Destroy(const RankOfKey& at, v1::GpuRequest::DestroyCommunicator order,
                                absl::AnyInvocable<void(absl::Status)> done) {
  Admit(at.rank, at.key.epoch,
        [this, at, order = std::move(order),
         done = std::move(done)](absl::StatusOr<GpuDevice*> gpu) mutable {
          if (!gpu.ok()) return done(gpu.status());
          v1::GpuRequest request;
          *request.mutable_destroy_communicator() = std::move(order);
          (*gpu)->process().Call(std::move(request),
                                 [this, at, done = std::move(done)](
                                     const absl::StatusOr<GpuProcess::Reply>& reply) mutable {
                                   if (reply.ok()) Forget(at.rank, at.key);
                                   done(reply.status());
                                 });
        });
}

void CommunicatorProxy::Stop(const RankOfKey& at, v1::GpuRequest::StopCommunicator order,
                             absl::AnyInvocable<void(absl::Status)> done) {
  Admit(at.rank, at.key.epoch,
        [this, at, order = std::move(order),
         done = std::move(done)](absl::StatusOr<GpuDevice*> gpu) mutable {
          if (!gpu.ok()) return done(gpu.status());
          Forget(at.rank, at.key);
          v1::GpuRequest request;
          *request.mutable_stop_communicator() = std::move(order);
          (*gpu)->process().Call(
              std::move(request),
              [done = std::move(done)](const absl::StatusOr<GpuProcess::Reply>& reply) mutable {
                done(reply.status());
              });
        });
}

}  // namespace crossmesh
