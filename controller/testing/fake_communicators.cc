#include "controller/testing/fake_communicators.h"

#include "common/base/status_macros.h"
#include "common/wire/communicator_codec.h"
#include "controller/service/unary.h"

#include <string>
#include <utility>

namespace crossmesh {

std::optional<RankName> FakeCommunicators::process() const {
  const MutexLock lock(mutex_);
  return process_;
}

void FakeCommunicators::ReplaceProcess() {
  const MutexLock lock(mutex_);
  ++process_->incarnation;
  keys_.clear();
}

void FakeCommunicators::SetCreation(absl::Status status) {
  const MutexLock lock(mutex_);
  creation_ = std::move(status);
}

void FakeCommunicators::SetFigures(absl::StatusOr<v1::MeasureGpuResponse> figures) {
  const MutexLock lock(mutex_);
  figures_ = std::move(figures);
}

std::set<CommunicatorKey> FakeCommunicators::keys() const {
  const MutexLock lock(mutex_);
  return keys_;
}

int FakeCommunicators::creations() const {
  const MutexLock lock(mutex_);
  return creations_;
}

absl::Status FakeCommunicators::Admit(const v1::CommunicatorKey::Rank& rank, uint64_t epoch) {
  ASSIGN_OR_RETURN(const RankName name, FromProto(rank));
  if (name != process_) return absl::UnavailableError("another process drives the GPU");
  if (epoch < epoch_) return absl::AbortedError("the epoch is over");
  if (std::exchange(epoch_, epoch) < epoch) keys_.clear();
  return absl::OkStatus();
}

absl::Status FakeCommunicators::Admit(const v1::CommunicatorKey& key, int rank) {
  if (rank >= key.ranks_size()) return absl::InvalidArgumentError("no such rank");
  return Admit(key.ranks(rank), key.epoch());
}

absl::Status FakeCommunicators::Remove(const v1::CommunicatorKey& proto, int rank) {
  const MutexLock lock(mutex_);
  RETURN_IF_ERROR(Admit(proto, rank));
  ASSIGN_OR_RETURN(const CommunicatorKey key, FromProto(proto));
  return keys_.erase(key) > 0 ? absl::OkStatus() : absl::NotFoundError("it is not here");
}

grpc::ServerUnaryReactor* FakeCommunicators::GetPreflight(grpc::CallbackServerContext* context,
                                                          const v1::GetPreflightRequest* request,
                                                          v1::GetPreflightResponse* response) {
  const MutexLock lock(mutex_);
  const absl::Status status = Admit(request->rank(), request->epoch());
  if (status.ok()) {
    *response->mutable_report() = ToProto(PreflightReport{
        .rank = *process_, .nccl_version = 23007, .free_bytes = int64_t{100} << 30});
  }
  return Answer(context, status);
}

grpc::ServerUnaryReactor* FakeCommunicators::MintCommunicatorId(
    grpc::CallbackServerContext* context, const v1::MintCommunicatorIdRequest* request,
    v1::MintCommunicatorIdResponse* response) {
  const MutexLock lock(mutex_);
  response->set_id(std::string(128, '\xff'));
  return Answer(context, Admit(request->rank(), request->epoch()));
}

grpc::ServerUnaryReactor* FakeCommunicators::CreateCommunicator(
    grpc::CallbackServerContext* context, const v1::CreateCommunicatorRequest* request,
    v1::CreateCommunicatorResponse* response) {
  const MutexLock lock(mutex_);
  ++creations_;
  absl::Status status = Admit(request->key(), request->rank());
  status.Update(creation_);
  absl::StatusOr<CommunicatorKey> key = FromProto(request->key());
  status.Update(key.status());
  if (request->id().size() != 128) status.Update(absl::InvalidArgumentError("a bad id"));
  if (status.ok()) keys_.insert(*std::move(key));
  response->set_size_bytes(int64_t{1} << 28);
  return Answer(context, status);
}

grpc::ServerUnaryReactor* FakeCommunicators::DestroyCommunicator(
    grpc::CallbackServerContext* context, const v1::DestroyCommunicatorRequest* request,
    v1::DestroyCommunicatorResponse* /*response*/) {
  return Answer(context, Remove(request->key(), request->rank()));
}

grpc::ServerUnaryReactor* FakeCommunicators::MeasureGpu(grpc::CallbackServerContext* context,
                                                        const v1::MeasureGpuRequest* request,
                                                        v1::MeasureGpuResponse* response) {
  const MutexLock lock(mutex_);
  absl::Status status = Admit(request->key(), request->rank());
  const absl::StatusOr<CommunicatorKey> key = FromProto(request->key());
  status.Update(key.status());
  if (status.ok() && !keys_.contains(*key)) status = absl::NotFoundError("it is not here");
  status.Update(figures_.status());
  if (status.ok()) *response = *figures_;
  return Answer(context, status);
}

grpc::ServerUnaryReactor* FakeCommunicators::StopCommunicator(
    grpc::CallbackServerContext* context, const v1::StopCommunicatorRequest* request,
    v1::StopCommunicatorResponse* /*response*/) {
  return Answer(context, Remove(request->key(), request->rank()));
}

}  // namespace crossmesh
