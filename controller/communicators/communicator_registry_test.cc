// A cluster of GPUs whose processes do what the registry says, in random order, now and then with a
// failure, a death, or a worker that is out of sight; what must hold whatever happens is checked at
// every step.

#include "controller/communicators/communicator_registry.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr int64_t kBytesMax = 35;
constexpr int kGpus = 4;

class Cluster {
 public:
  explicit Cluster(uint64_t seed) : random_(seed) {
    for (int gpu = 0; gpu < kGpus; ++gpu) names_.push_back({absl::StrCat("g", gpu), 1});
  }

  void Run(int steps) {
    for (int step = 0; step < steps; ++step) Step();
    deaths_ = false;
    for (const auto& [user, key] : std::set<Lease>(leases_)) Feed(CommunicatorReleased{user, key});
    leases_.clear();
    while (!pending_.empty()) FeedPending(0);
    EXPECT_TRUE(wanted_.empty()) << "a user was never answered";
  }

  int granted() const { return granted_; }
  int refused() const { return refused_; }

 private:
  using Lease = std::pair<std::string, CommunicatorKey>;

  uint64_t Below(uint64_t end) { return random_() % end; }

  void Step() {
    if (!pending_.empty() && Below(3) > 0) return FeedPending(Below(pending_.size()));
    if (Below(40) == 0) return Below(2) == 0 ? KillProcess() : LoseSight();
    if (!leases_.empty() && Below(2) == 0) return Release();
    const Lease wanted(absl::StrCat("op", Below(6)), RandomKey());
    if (leases_.contains(wanted) || !wanted_.insert(wanted).second) return;
    Feed(CommunicatorWanted{wanted.first, wanted.second});
  }

  CommunicatorKey RandomKey() {
    CommunicatorKey key = {.ranks = names_, .purpose = absl::StrCat("p", Below(2)), .epoch = 1};
    std::shuffle(key.ranks.begin(), key.ranks.end(), random_);
    key.ranks.resize(1 + Below(kGpus));
    return key;
  }

  void Release() {
    const auto lease = std::next(leases_.begin(), static_cast<ptrdiff_t>(Below(leases_.size())));
    const Lease released = *lease;
    leases_.erase(lease);
    Feed(CommunicatorReleased{released.first, released.second});
  }

  void KillProcess() {
    RankName& name = names_[Below(kGpus)];
    const RankName lost = name;
    ++name.incarnation;
    Lose(lost, "killed");
  }
  // The process is back at once, with all that it has.
  void LoseSight() { Lose(RankName(names_[Below(kGpus)]), "its worker was lost"); }
  // What it had answered is not heard any more.
  void Lose(const RankName& lost, absl::string_view why) {
    std::erase_if(pending_, [&](const auto& event) { return IsOf(event, lost); });
    Feed(ProcessLost{lost, absl::UnavailableError(why)});
  }

  // Whether the event is what `rank` says, of the communicator if one is given.
  static bool IsOf(const CommunicatorEvent& event, const RankName& rank,
                   const CommunicatorKey* key = nullptr) {
    return std::visit(
        [&](const auto& e) {
          if constexpr (requires { e.rank; }) {
            if constexpr (requires { e.key; }) return e.rank == rank && (!key || e.key == *key);
            return e.rank == rank && !key;
          }
          return false;
        },
        event);
  }

  bool IsAlive(const RankName& rank) const {
    return std::ranges::find(names_, rank) != names_.end();
  }

  void FeedPending(size_t index) {
    const CommunicatorEvent event = pending_[index];
    pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(index));
    Feed(event);
  }

  void Feed(const CommunicatorEvent& event) {
    for (const CommunicatorAction& action : registry_.Handle(event)) {
      std::visit([this](const auto& a) { Do(a); }, action);
    }
  }

  // What the process of a rank answers an order with.
  void Answer(const CommunicatorKey& key, const RankName& rank, CommunicatorEvent success) {
    if (!IsAlive(rank)) return;  // its ProcessLost has been told
    if (deaths_ && Below(20) == 0) {
      pending_.push_back(RankFailed{key, rank, absl::UnavailableError("it broke")});
    } else {
      pending_.push_back(std::move(success));
    }
  }

  void CheckTicket(const RankName& rank, uint64_t ticket) {
    EXPECT_GT(ticket, tickets_[rank]) << rank;
    tickets_[rank] = ticket;
  }

  void Do(const CollectPreflights& action) {
    PreflightsCollected collected = {.key = action.key};
    for (const RankName& rank : action.key.ranks) {
      if (!IsAlive(rank)) {
        pending_.push_back(RankFailed{action.key, rank, absl::UnavailableError("not there")});
        return;
      }
      collected.reports.push_back(
          {.rank = rank, .free_bytes = 1000, .communicators = HeldBy(rank)});
    }
    Answer(action.key, action.key.ranks[0], std::move(collected));
  }
  // Each communicator takes something else at every look.
  std::map<uint64_t, int64_t> HeldBy(const RankName& rank) {
    std::map<uint64_t, int64_t> held;
    for (const auto& [created, ticket] : created_) {
      if (created.first == rank) held[ticket] = RandomBytes();
    }
    return held;
  }
  int64_t RandomBytes() { return static_cast<int64_t>(5 + Below(6)); }

  void Do(const MintId& action) {
    Answer(action.key, action.key.ranks[0], IdMinted{action.key, "id"});
  }
  void Do(const CreateCommunicator& action) {
    ExpectNothingUnderWay();
    for (const RankName& rank : action.key.ranks) {
      CheckTicket(rank, action.ticket);
      EXPECT_LE(registry_.BytesOn(rank.gpu), kBytesMax) << "with what is expected of it";
      EXPECT_TRUE(created_.insert({{rank, action.key}, action.ticket}).second);
      Answer(action.key, rank, RankReady{action.key, rank, RandomBytes()});
    }
  }
  void Do(const DestroyCommunicator& action) {
    ExpectNothingUnderWay();
    EXPECT_TRUE(
        std::ranges::none_of(leases_, [&](const Lease& l) { return l.second == action.key; }))
        << action.key << " is in use";
    for (const RankName& rank : action.key.ranks) {
      CheckTicket(rank, action.ticket);
      Go(rank, action.key);
    }
  }
  void Do(const StopCommunicator& action) {
    for (const RankName& rank : action.ranks) {
      // Answers to orders before this one are not heard any more.
      std::erase_if(pending_, [&](const auto& event) { return IsOf(event, rank, &action.key); });
      Go(rank, action.key);
    }
  }
  // The rank frees what it has of the communicator, if anything.
  void Go(const RankName& rank, const CommunicatorKey& key) {
    created_.erase({rank, key});
    if (IsAlive(rank)) pending_.push_back(RankGone{key, rank});
  }
  void ExpectNothingUnderWay() const {
    for (const CommunicatorEvent& event : pending_) {
      EXPECT_FALSE(std::holds_alternative<RankReady>(event) ||
                   std::holds_alternative<RankGone>(event))
          << "an answer of a rank is still to come";
    }
  }
  void Do(const GrantLease& action) {
    ++granted_;
    EXPECT_EQ(wanted_.erase({action.user, action.key}), 1);
    leases_.insert({action.user, action.key});
  }
  void Do(const EndLease& action) {
    ++refused_;
    EXPECT_EQ(wanted_.erase({action.user, action.key}) + leases_.erase({action.user, action.key}),
              1);
  }

  std::mt19937_64 random_;
  CommunicatorRegistry registry_{{.gpu_bytes_max = kBytesMax, .expected_bytes = 10}};
  std::vector<RankName> names_;
  bool deaths_ = true;
  std::vector<CommunicatorEvent> pending_;
  std::set<Lease> wanted_;
  std::set<Lease> leases_;
  std::map<RankName, uint64_t> tickets_;
  std::map<std::pair<RankName, CommunicatorKey>, uint64_t> created_;  // with their tickets
  int granted_ = 0;
  int refused_ = 0;
};

TEST(CommunicatorRegistryTest, WhateverHappensItsPromisesHold) {
  uint64_t seed = std::random_device()();
  if (const char* text = std::getenv("CROSSMESH_TEST_SEED")) {
    ASSERT_TRUE(absl::SimpleAtoi(text, &seed));
  }
  SCOPED_TRACE(absl::StrCat("CROSSMESH_TEST_SEED=", seed));
  int granted = 0;
  int refused = 0;
  for (int run = 0; run < 100; ++run) {
    Cluster cluster(seed + run);
    cluster.Run(300);
    granted += cluster.granted();
    refused += cluster.refused();
  }
  EXPECT_GT(granted, 1000);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace crossmesh
