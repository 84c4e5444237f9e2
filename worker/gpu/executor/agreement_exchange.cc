#include "worker/gpu/executor/agreement_exchange.h"

#include "common/base/status_macros.h"
#include "worker/executor/prepared_part.h"
#include "worker/gpu/communicators/registered_staging.h"
#include "worker/gpu/compiler/chunk_message.h"
#include "worker/gpu/device/registered_memory.h"

#include <vector>

namespace crossmesh {
namespace {

constexpr int64_t kAgreementBytes = sizeof(ExecutionAgreement);

int64_t PlaceAfter(const GpuBinding& binding) {
  return ChunkMessage::RoundUp(binding.staging_bytes(), ChunkMessage::kPlaceAlignment);
}

}  // namespace

int64_t AgreementExchange::StagingBytes(const GpuBinding& binding) {
  return PlaceAfter(binding) + kAgreementBytes * (1 + binding.agreements_told_count());
}

// The own one is the first, those that are told follow: of the peers, or of all ranks.
uint64_t AgreementExchange::AddressOf(size_t place) const {
  return shared_.staging.address() + PlaceAfter(binding_) + kAgreementBytes * place;
}

absl::Status AgreementExchange::Begin() {
  const GpuBinding::Peers& peers = binding_.peers();
  stage_ = Stage::kExchanging;
  if (peers.all.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(binding_.host_memory().CopyToGpu(std::as_bytes(binding_.own_agreement()),
                                                   AddressOf(0), *shared_.wire));
  if (binding_.is_of_group()) {
    return communicator_.Perform({.kind = CollectiveKind::kAllGather,
                                  .from = AddressOf(0),
                                  .to = AddressOf(1),
                                  .count = kAgreementBytes},
                                 shared_.wire->handle());
  }
  shared_.sends.clear();
  shared_.receives.clear();
  for (const DeviceRank receiver : peers.receivers) {
    shared_.sends.push_back(
        {.peer = ranks_[receiver], .address = AddressOf(0), .bytes = kAgreementBytes});
  }
  size_t place = 0;
  for (const DeviceRank sender : peers.senders) {
    shared_.receives.push_back(
        {.peer = ranks_[sender], .address = AddressOf(++place), .bytes = kAgreementBytes});
  }
  return communicator_.Exchange(shared_.sends, shared_.receives, shared_.wire->handle());
}

absl::StatusOr<bool> AgreementExchange::Advance() {
  // In both stages: NCCL tells an error of the group, even of one that is on the stream, here only.
  ASSIGN_OR_RETURN(const Communicator::Progress progress, communicator_.Poll());
  if (progress == Communicator::Progress::kInProgress) return false;
  if (stage_ == Stage::kExchanging) {
    RETURN_IF_ERROR(BeginReading());
    stage_ = Stage::kReading;
  }
  ASSIGN_OR_RETURN(const bool is_read, shared_.end_events.wired->IsDone());
  if (!is_read) return false;
  stage_ = Stage::kEnded;
  RETURN_IF_ERROR(Compare());
  return true;
}

absl::Status AgreementExchange::BeginReading() {
  const std::span<std::byte> told = std::as_writable_bytes(binding_.agreements_told());
  if (!told.empty()) {
    RETURN_IF_ERROR(binding_.host_memory().CopyFromGpu(AddressOf(1), told, *shared_.wire));
  }
  return shared_.end_events.wired->Record(*shared_.wire);
}

absl::Status AgreementExchange::Compare() {
  const ExecutionAgreement& own = binding_.own_agreement().front();
  const std::vector<DeviceId>& devices = binding_.part().part().tensors().devices();
  const bool is_of_group = binding_.is_of_group();
  const GpuBinding::Peers& peers = binding_.peers();
  const std::vector<DeviceRank>& told_by = is_of_group ? peers.all : peers.senders;
  for (size_t i = 0; i < told_by.size(); ++i) {
    const size_t place = is_of_group ? ranks_[told_by[i]] : i;
    RETURN_IF_ERROR(
        CheckAgreement(own, binding_.agreements_told()[place], ToString(devices[told_by[i]])));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
