#include "worker/gpu/devices/communicator_proxy.h"

#include <algorithm>
#include <variant>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// What a reply holds, of a kind that the request's answer has.
template <typename Result>
absl::StatusOr<Result> ResultOf(const absl::StatusOr<GpuProcess::Reply>& reply) {
  if (!reply.ok()) return reply.status();
  if (const auto* result = std::get_if<Result>(&reply->result)) return *result;
  return absl::InternalError("the process of the GPU answered something else than was asked");
}

}  // namespace

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
    // Whatever the answer, it is gone, or its process will be.
    (*gpu)->Call(GpuRequest::StopCommunicator{.key = key, .cause = cause},
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

void CommunicatorProxy::GetPreflight(
    const RankName& rank, uint64_t epoch,
    absl::AnyInvocable<void(absl::StatusOr<PreflightReport>)> done) {
  Admit(rank, epoch, [done = std::move(done)](absl::StatusOr<GpuDevice*> gpu) mutable {
    if (!gpu.ok()) return done(gpu.status());
    done((*gpu)->preflight());
  });
}

void CommunicatorProxy::MintId(const RankName& rank, uint64_t epoch,
                               absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) {
  Admit(rank, epoch, [done = std::move(done)](absl::StatusOr<GpuDevice*> gpu) mutable {
    if (!gpu.ok()) return done(gpu.status());
    (*gpu)->Call(GpuRequest::MintCommunicatorId(),
                 [done = std::move(done)](const absl::StatusOr<GpuProcess::Reply>& reply) mutable {
                   const auto minted = ResultOf<GpuNotice::MintedId>(reply);
                   if (!minted.ok()) return done(minted.status());
                   done(minted->id);
                 });
  });
}

void CommunicatorProxy::Create(const RankName& rank, GpuRequest::CreateCommunicator order,
                               absl::AnyInvocable<void(absl::StatusOr<int64_t>)> done) {
  const uint64_t epoch = order.key.epoch;
  Admit(rank, epoch,
        [this, rank, order = std::move(order),
         done = std::move(done)](absl::StatusOr<GpuDevice*> gpu) mutable {
          if (!gpu.ok()) return done(gpu.status());
          made_.emplace_back(rank, order.key);
          (*gpu)->Call(order, [this, rank, key = order.key, done = std::move(done)](
                                  const absl::StatusOr<GpuProcess::Reply>& reply) mutable {
            const auto made = ResultOf<GpuNotice::CommunicatorBytes>(reply);
            if (made.ok()) return done(made->bytes);
            Forget(rank, key);
            done(made.status());
          });
        });
}

void CommunicatorProxy::Destroy(const RankName& rank, GpuRequest::DestroyCommunicator order,
                                absl::AnyInvocable<void(absl::Status)> done) {
  const uint64_t epoch = order.key.epoch;
  Admit(rank, epoch,
        [this, rank, order = std::move(order),
         done = std::move(done)](absl::StatusOr<GpuDevice*> gpu) mutable {
          if (!gpu.ok()) return done(gpu.status());
          (*gpu)->Call(order, [this, rank, key = order.key, done = std::move(done)](
                                  const absl::StatusOr<GpuProcess::Reply>& reply) mutable {
            if (reply.ok()) Forget(rank, key);
            done(reply.status());
          });
        });
}

void CommunicatorProxy::Stop(const RankName& rank, GpuRequest::StopCommunicator order,
                             absl::AnyInvocable<void(absl::Status)> done) {
  const uint64_t epoch = order.key.epoch;
  Admit(rank, epoch,
        [this, rank, order = std::move(order),
         done = std::move(done)](absl::StatusOr<GpuDevice*> gpu) mutable {
          if (!gpu.ok()) return done(gpu.status());
          Forget(rank, order.key);
          (*gpu)->Call(order, [done = std::move(done)](
                                  const absl::StatusOr<GpuProcess::Reply>& reply) mutable {
            done(reply.status());
          });
        });
}

}  // namespace crossmesh
