#include "worker/gpu/communicators/communicator_table.h"

#include "common/base/status_macros.h"
#include "worker/gpu/communicators/preflight.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Its user's calls come and go, which only the user needs to know.
CommunicatorState WithoutCalls(CommunicatorState state) {
  return state == CommunicatorState::kExchanging ? CommunicatorState::kReady : state;
}

}  // namespace

CommunicatorTable::CommunicatorTable(const Clock& clock, const DriverApi& driver,
                                     const NcclApi& nccl, Options options)
    : clock_(clock), driver_(driver), nccl_(nccl), options_(std::move(options)) {}

absl::Status CommunicatorTable::BeginEpoch(uint64_t epoch) {
  if (epoch < epoch_) {
    return absl::AbortedError(
        absl::StrCat("epoch ", epoch, " begins after epoch ", epoch_, " has begun"));
  }
  if (epoch == epoch_) return absl::OkStatus();
  epoch_ = epoch;
  last_ticket_ = 0;
  const absl::Status cause = absl::AbortedError(absl::StrCat("epoch ", epoch, " has begun"));
  for (auto& [key, entry] : entries_) entry.life->Stop(cause);
  return absl::OkStatus();
}

absl::Status CommunicatorTable::TakeTicket(const CommunicatorKey& key, uint64_t ticket) {
  if (key.epoch != epoch_) {
    return absl::AbortedError(absl::StrCat("communicator ", key.ToString(), " is ordered by epoch ",
                                           key.epoch, ", expected epoch ", epoch_));
  }
  if (ticket <= last_ticket_) {
    return absl::FailedPreconditionError(absl::StrCat("communicator ", key.ToString(),
                                                      " is ordered with ticket ", ticket,
                                                      ", expected one after ", last_ticket_));
  }
  last_ticket_ = ticket;
  return absl::OkStatus();
}

absl::Status CommunicatorTable::CheckNothingUnderWay(const CommunicatorKey& key) const {
  for (const auto& [other, entry] : entries_) {
    const CommunicatorState state = entry.life->state();
    if (WithoutCalls(state) == CommunicatorState::kReady) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("communicator ", key.ToString(), " is ordered while ", other.ToString(),
                     " is ", CommunicatorStateName(state), "; one at a time"));
  }
  return absl::OkStatus();
}

absl::Status CommunicatorTable::CheckKey(const CommunicatorKey& key) const {
  if (entries_.contains(key)) {
    return absl::AlreadyExistsError(
        absl::StrCat("communicator ", key.ToString(), " is here already"));
  }
  const auto times = std::ranges::count(key.ranks, options_.self);
  if (times == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("communicator ", key.ToString(), " has ", times,
                                                 " ranks ", options_.self.ToString(),
                                                 ", expected one"));
}

absl::Status CommunicatorTable::Create(const CommunicatorKey& key, uint64_t ticket,
                                       const std::string& id) {
  // First of all: an order that is refused has used its ticket up, so that a copy of it which comes
  // late is not obeyed after a newer one.
  RETURN_IF_ERROR(TakeTicket(key, ticket));
  RETURN_IF_ERROR(CheckKey(key));
  RETURN_IF_ERROR(CheckNothingUnderWay(key));
  ASSIGN_OR_RETURN(const int64_t free_bytes, FreeGpuBytes(driver_));
  const auto self = std::ranges::find(key.ranks, options_.self);
  ASSIGN_OR_RETURN(
      std::unique_ptr<NcclCommunicator> communicator,
      NcclCommunicator::Begin(nccl_, {.name = key.ToString(),
                                      .id = id,
                                      .rank = static_cast<int>(self - key.ranks.begin()),
                                      .size = static_cast<int>(key.ranks.size()),
                                      .ctas = options_.ctas,
                                      .m2n = options_.m2n}));
  entries_[key] = {
      .life = std::make_unique<CommunicatorLife>(
          clock_, std::move(communicator),
          CommunicatorLife::Options{
              .driver = driver_, .staging = options_.staging, .timeouts = options_.timeouts}),
      .ticket = ticket,
      .free_bytes_before = free_bytes};
  return absl::OkStatus();
}

absl::Status CommunicatorTable::Destroy(const CommunicatorKey& key, uint64_t ticket) {
  RETURN_IF_ERROR(TakeTicket(key, ticket));
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    return absl::NotFoundError(absl::StrCat("communicator ", key.ToString(), " is not here"));
  }
  RETURN_IF_ERROR(CheckNothingUnderWay(key));
  return found->second.life->Finalize();
}

absl::Status CommunicatorTable::Stop(const CommunicatorKey& key, const absl::Status& cause) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    return absl::NotFoundError(absl::StrCat("communicator ", key.ToString(), " is not here"));
  }
  found->second.life->Stop(cause);
  return absl::OkStatus();
}

std::vector<CommunicatorTable::Change> CommunicatorTable::Poll() {
  std::vector<Change> changes;
  for (auto it = entries_.begin(); it != entries_.end();) {
    auto& [key, entry] = *it;
    const CommunicatorState state = WithoutCalls(entry.life->Poll());
    if (state != entry.told) {
      if (state == CommunicatorState::kReady) entry.bytes = Measure(entry);
      entry.told = state;
      changes.push_back(
          {.key = key, .state = state, .cause = entry.life->cause(), .bytes = entry.bytes});
    }
    // One that hangs is kept, so that CheckNothingUnderWay refuses all that is ordered after it.
    const bool is_gone = IsOver(state) && state != CommunicatorState::kHung;
    it = is_gone ? entries_.erase(it) : std::next(it);
  }
  return changes;
}

int64_t CommunicatorTable::Measure(const Entry& entry) const {
  if (const std::optional<int64_t> told = entry.life->MemoryBytes()) return *told;
  // An NCCL that does not tell: what else was made or freed on the GPU since then, by other
  // processes above all, is counted in, and what connections will take is not.
  const absl::StatusOr<int64_t> free_bytes = FreeGpuBytes(driver_);
  return free_bytes.ok() ? std::max<int64_t>(entry.free_bytes_before - *free_bytes, 0) : 0;
}

std::map<uint64_t, int64_t> CommunicatorTable::MemoryByTicket() {
  std::map<uint64_t, int64_t> memory;
  for (auto& [key, entry] : entries_) {
    if (entry.life->communicator() == nullptr) continue;
    entry.bytes = entry.life->MemoryBytes().value_or(entry.bytes);
    memory.emplace(entry.ticket, entry.bytes);
  }
  return memory;
}

Communicator* CommunicatorTable::Find(const CommunicatorKey& key) {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : found->second.life->communicator();
}

std::vector<CommunicatorTable::Listing> CommunicatorTable::List() const {
  std::vector<Listing> listings;
  for (const auto& [key, entry] : entries_) {
    listings.push_back({.key = key, .state = entry.life->state(), .bytes = entry.bytes});
  }
  return listings;
}

}  // namespace crossmesh
