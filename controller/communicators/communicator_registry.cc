#include "controller/communicators/communicator_registry.h"

#include "common/base/error_place.h"
#include "common/communicators/gpu_share.h"
#include "controller/communicators/compare_preflights.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kNotReady = -1;

absl::Status About(const RankName& rank, const absl::Status& status) {
  return At(absl::StrCat("rank ", rank.ToString()), status);
}

bool HasRank(const CommunicatorKey& key, const RankName& rank) {
  return std::ranges::find(key.ranks, rank) != key.ranks.end();
}

// Shares of a GPU have its memory in common.
bool IsSameGpu(absl::string_view a, absl::string_view b) { return UuidOf(a) == UuidOf(b); }

int64_t RanksOn(const CommunicatorKey& key, absl::string_view gpu) {
  return std::ranges::count_if(key.ranks,
                               [&](const RankName& rank) { return IsSameGpu(rank.gpu, gpu); });
}

}  // namespace

std::vector<CommunicatorAction> CommunicatorRegistry::Handle(const CommunicatorEvent& event) {
  actions_.clear();
  std::visit([this](const auto& e) { On(e); }, event);
  Settle();
  return std::move(actions_);
}

void CommunicatorRegistry::On(const CommunicatorWanted& event) {
  const auto found = communicators_.find(event.key);
  if (found != communicators_.end() && found->second.users.contains(event.user)) return;
  const Wait wait(event.user, event.key);
  if (std::ranges::find(waits_, wait) == waits_.end()) waits_.push_back(wait);
}

void CommunicatorRegistry::On(const CommunicatorReleased& event) {
  std::erase(waits_, Wait(event.user, event.key));
  const auto found = communicators_.find(event.key);
  if (found == communicators_.end() || found->second.users.erase(event.user) == 0) return;
  found->second.released = ++releases_;
}

void CommunicatorRegistry::On(const PreflightsCollected& event) {
  Communicator* const communicator = FindIn(State::kComparing, event.key);
  if (communicator == nullptr) return;
  NoteHeld(event.reports);
  // What was seen of another one may be too much, and would never be seen to be less if it kept all
  // others from being made. So it decides who goes, and not whether one is tried.
  const int64_t needed = std::min(ExpectedBytes(event.key), options_.expected_bytes);
  if (const absl::Status fit = ComparePreflights(event.reports, needed); !fit.ok()) {
    EndWaits(event.key, fit);
    communicators_.erase(event.key);
    return;
  }
  // It waits again where the others turned out to take more than was known.
  if (FullGpu(event.key) != nullptr) {
    communicators_.erase(event.key);
    return;
  }
  communicator->state = State::kMinting;
  Do(MintId{event.key});
}

void CommunicatorRegistry::On(const IdMinted& event) {
  Communicator* const communicator = FindIn(State::kMinting, event.key);
  if (communicator == nullptr) return;
  communicator->state = State::kMinted;
  communicator->id = event.id;
}

void CommunicatorRegistry::On(const RankReady& event) {
  Communicator* const communicator = FindIn(State::kCreating, event.key);
  if (communicator == nullptr) return;
  const auto held = communicator->held.find(event.rank);
  if (held == communicator->held.end()) return;
  held->second = event.bytes;
  const bool all_ready = std::ranges::none_of(
      communicator->held, [](const auto& entry) { return entry.second == kNotReady; });
  if (!all_ready) return;
  Expect(event.key, *communicator);
  communicator->state = State::kReady;
  communicator->released = ++releases_;
}

void CommunicatorRegistry::On(const RankFailed& event) {
  Fail(event.key, event.rank, event.status);
}

void CommunicatorRegistry::On(const RankGone& event) {
  const auto found = communicators_.find(event.key);
  if (found == communicators_.end() || !found->second.held.contains(event.rank)) return;
  found->second.held.erase(event.rank);  // so that it is not told to stop
  if (found->second.state != State::kDestroying) {
    Fail(event.key, event.rank, absl::UnavailableError("its communicator is gone"));
  }
  EraseIfGone(event.key);
}

void CommunicatorRegistry::On(const ProcessLost& event) {
  // A GPU has one process at a time: what earlier ones held went with them.
  std::erase_if(leftovers_, [&](const auto& entry) {
    return entry.first.gpu == event.rank.gpu && entry.first != event.rank;
  });
  // Keys first: to fail a communicator may take it out of the table.
  std::set<CommunicatorKey> keys;
  for (const auto& [key, communicator] : communicators_) keys.insert(key);
  for (const Wait& wait : waits_) keys.insert(wait.second);
  std::erase_if(keys, [&](const CommunicatorKey& key) { return !HasRank(key, event.rank); });
  for (const CommunicatorKey& key : keys) {
    EndWaits(key, About(event.rank, event.status));
    const auto found = communicators_.find(key);
    if (found == communicators_.end()) continue;
    // Before Fail, so that the lost process is not told to stop: it is when it is back.
    const auto held = found->second.held.extract(event.rank);
    if (!held.empty()) leftovers_[event.rank].emplace(key, held.mapped());
    Fail(key, event.rank, event.status);
    EraseIfGone(key);
  }
}

CommunicatorRegistry::Communicator* CommunicatorRegistry::FindIn(State state,
                                                                 const CommunicatorKey& key) {
  const auto found = communicators_.find(key);
  if (found == communicators_.end() || found->second.state != state) return nullptr;
  return &found->second;
}

void CommunicatorRegistry::Fail(const CommunicatorKey& key, const RankName& rank,
                                const absl::Status& status) {
  const auto found = communicators_.find(key);
  if (found == communicators_.end() || found->second.state == State::kStopping) return;
  Communicator& communicator = found->second;
  const absl::Status cause = About(rank, status);
  for (const std::string& user : communicator.users) Do(EndLease{user, key, cause});
  communicator.users.clear();
  // A user that waits for one that is being destroyed wants the next one.
  if (communicator.state != State::kDestroying) EndWaits(key, cause);
  communicator.state = State::kStopping;
  StopCommunicator stop = {.key = key, .cause = cause};
  for (const auto& [held_by, bytes] : communicator.held) stop.ranks.push_back(held_by);
  if (!stop.ranks.empty()) Do(std::move(stop));
  EraseIfGone(key);
}

void CommunicatorRegistry::EraseIfGone(const CommunicatorKey& key) {
  const auto found = communicators_.find(key);
  if (found != communicators_.end() && found->second.held.empty()) communicators_.erase(found);
}

void CommunicatorRegistry::EndWaits(const CommunicatorKey& key, const absl::Status& cause) {
  for (const Wait& wait : waits_) {
    if (wait.second == key) Do(EndLease{wait.first, key, cause});
  }
  std::erase_if(waits_, [&](const Wait& wait) { return wait.second == key; });
}

int64_t CommunicatorRegistry::ExpectedBytes(const CommunicatorKey& key) const {
  const auto seen = expected_bytes_.find(key.ranks.size());
  return seen == expected_bytes_.end() ? options_.expected_bytes : seen->second;
}

int64_t CommunicatorRegistry::NeededBytes(const CommunicatorKey& key, absl::string_view gpu) const {
  return std::min(RanksOn(key, gpu) * ExpectedBytes(key), options_.gpu_bytes_max);
}

// Of the rank that takes most. What its neighbours took meanwhile may be counted in, so it is not
// believed beyond what all communicators may take: by that a GPU's first one is never refused.
void CommunicatorRegistry::Expect(const CommunicatorKey& key, const Communicator& seen) {
  int64_t most = 0;
  for (const auto& [rank, bytes] : seen.held) most = std::max(most, bytes);
  expected_bytes_[key.ranks.size()] = std::min(most, options_.gpu_bytes_max);
}

void CommunicatorRegistry::NoteHeld(const std::vector<PreflightReport>& reports) {
  for (auto& [key, communicator] : communicators_) {
    if (communicator.state != State::kReady) continue;
    bool is_noted = false;
    for (const PreflightReport& report : reports) {
      const auto held = communicator.held.find(report.rank);
      const auto now = report.communicators.find(communicator.ticket);
      if (held == communicator.held.end() || now == report.communicators.end()) continue;
      held->second = now->second;
      is_noted = true;
    }
    if (is_noted) Expect(key, communicator);
  }
}

void CommunicatorRegistry::Settle() {
  GrantReady();
  CreateMinted();
  // With a copy of the key: the wait that it stands in may end meanwhile.
  while (!waits_.empty() && !IsBusy()) BeginOrMakeRoom(CommunicatorKey(waits_.front().second));
}

void CommunicatorRegistry::GrantReady() {
  std::erase_if(waits_, [this](const Wait& wait) {
    Communicator* const communicator = FindIn(State::kReady, wait.second);
    if (communicator == nullptr) return false;
    communicator->users.insert(wait.first);
    Do(GrantLease{wait.first, wait.second});
    return true;
  });
}

void CommunicatorRegistry::CreateMinted() {
  Communicators::value_type* minted = nullptr;
  for (auto& entry : communicators_) {
    // A rank that is being stopped may still be in a creation, and those must not overlap.
    if (entry.second.state == State::kStopping) return;
    if (entry.second.state == State::kMinted) minted = &entry;
  }
  if (minted == nullptr) return;
  auto& [key, communicator] = *minted;
  communicator.state = State::kCreating;
  for (const RankName& rank : key.ranks) communicator.held[rank] = kNotReady;
  communicator.ticket = ++last_ticket_;
  Do(CreateCommunicator{key, communicator.ticket, communicator.id});
}

bool CommunicatorRegistry::IsBusy() const {
  return std::ranges::any_of(communicators_,
                             [](const auto& entry) { return entry.second.state != State::kReady; });
}

bool CommunicatorRegistry::StopLeftovers(const CommunicatorKey& key) {
  bool any = false;
  for (const RankName& rank : key.ranks) {
    const auto leftovers = leftovers_.extract(rank);
    if (leftovers.empty()) continue;
    any = true;
    for (const auto& [left, bytes] : leftovers.mapped()) {
      Communicator& communicator = communicators_[left];
      communicator.state = State::kStopping;
      communicator.held[rank] = bytes;
      Do(StopCommunicator{left, {rank}, absl::AbortedError("its process was lost, and is back")});
    }
  }
  return any;
}

void CommunicatorRegistry::BeginOrMakeRoom(const CommunicatorKey& key) {
  if (StopLeftovers(key)) return;
  const std::string* const full = FullGpu(key);
  if (full == nullptr) {
    communicators_.emplace(key, Communicator{});
    Do(CollectPreflights{key});
    return;
  }
  const auto oldest = LongestReleasedOn(*full);
  if (oldest == communicators_.end()) {
    EndWaits(key, absl::ResourceExhaustedError(
                      absl::StrCat(*full, ": communicators in use take ", BytesOn(*full),
                                   " bytes, another one about ", NeededBytes(key, *full), ", of ",
                                   options_.gpu_bytes_max, " that they may take")));
    return;
  }
  oldest->second.state = State::kDestroying;
  Do(DestroyCommunicator{oldest->first, ++last_ticket_});
}

CommunicatorRegistry::Counts CommunicatorRegistry::counts() const {
  Counts counts;
  for (const auto& [key, communicator] : communicators_) {
    switch (communicator.state) {
      case State::kComparing:
      case State::kMinting:
      case State::kMinted:
      case State::kCreating:
        ++counts.making;
        break;
      case State::kReady:
        ++counts.ready;
        break;
      case State::kDestroying:
      case State::kStopping:
        ++counts.ending;
        break;
    }
  }
  return counts;
}

int64_t CommunicatorRegistry::BytesOn(absl::string_view gpu) const {
  int64_t total = 0;
  for (const auto& [key, communicator] : communicators_) {
    for (const auto& [rank, bytes] : communicator.held) {
      if (IsSameGpu(rank.gpu, gpu)) total += bytes == kNotReady ? ExpectedBytes(key) : bytes;
    }
  }
  return total;
}

const std::string* CommunicatorRegistry::FullGpu(const CommunicatorKey& key) const {
  const auto full = std::ranges::find_if(key.ranks, [&](const RankName& rank) {
    return BytesOn(rank.gpu) + NeededBytes(key, rank.gpu) > options_.gpu_bytes_max;
  });
  return full == key.ranks.end() ? nullptr : &full->gpu;
}

CommunicatorRegistry::Communicators::iterator CommunicatorRegistry::LongestReleasedOn(
    const std::string& gpu) {
  auto oldest = communicators_.end();
  for (auto it = communicators_.begin(); it != communicators_.end(); ++it) {
    if (!it->second.users.empty() || RanksOn(it->first, gpu) == 0) continue;
    if (oldest == communicators_.end() || it->second.released < oldest->second.released)
      oldest = it;
  }
  return oldest;
}

}  // namespace crossmesh
