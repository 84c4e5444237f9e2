// Candidates, an etcd and the way between them, all simulated: calls are slow, lost or done long
// after they were given up; processes stop and go on, end and start again; clocks run at speeds of
// their own.

#include "common/testing/random_cases.h"
#include "controller/leadership/election_machine.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kLease = absl::Seconds(5);
constexpr absl::Duration kCallLimit = absl::Milliseconds(1600);
constexpr absl::Duration kFaultsEnd = absl::Seconds(120);
constexpr absl::Duration kEnd = absl::Seconds(150);

// What happens when, in real time.
class Agenda {
 public:
  absl::Duration now() const { return now_; }
  void After(absl::Duration delay, std::function<void()> what) {
    steps_.emplace(std::pair(now_ + delay, next_++), std::move(what));
  }
  // Does the next step; false at the end.
  bool Step() {
    const auto first = steps_.begin();
    if (first->first.first > kEnd) return false;
    now_ = first->first.first;
    const std::function<void()> what = std::move(first->second);
    steps_.erase(first);
    what();
    return true;
  }

 private:
  std::map<std::pair<absl::Duration, int64_t>, std::function<void()>> steps_;
  int64_t next_ = 0;
  absl::Duration now_;
};

// As much of etcd as candidates use.
struct SimulatedEtcd {
  explicit SimulatedEtcd(Agenda& its_agenda) : agenda(its_agenda) {}

  void ExpireLeases() {
    for (auto lease = leases.begin(); lease != leases.end();) {
      const bool is_over = lease->second <= agenda.now();
      const int64_t id = lease->first;
      ++lease;
      if (is_over) End(id);
    }
  }
  void End(int64_t lease) {
    leases.erase(lease);
    if (!leader.has_value() || leader->lease != lease) return;
    leader.reset();
    ++revision;
    for (const auto& [candidate, tell] : watches) tell();
  }
  ElectionReading Read() const {
    return {
        .leader = leader, .epoch = epoch, .epoch_revision = epoch_revision, .revision = revision};
  }
  std::optional<int64_t> Campaign(const LeaderEntry& entry, uint64_t new_epoch, int64_t after) {
    if (leader.has_value() || epoch_revision != after || !leases.contains(entry.lease)) return {};
    leader = entry;
    epoch = new_epoch;
    epoch_revision = ++revision;
    return revision;
  }

  Agenda& agenda;
  std::map<int64_t, absl::Duration> leases;  // when they end
  std::map<int, std::function<void()>> watches;
  std::optional<LeaderEntry> leader;
  uint64_t epoch = 0;
  int64_t epoch_revision = 0;
  int64_t revision = 1;
  int64_t leases_granted = 0;
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed) : random_(seed), etcd_(agenda_) {
    for (int i = 0; i < 3; ++i) Begin(i);
    Tick();
    Disturb();
  }

  void Run() {
    while (!testing::Test::HasFailure() && agenda_.Step()) Check();
    if (testing::Test::HasFailure()) return;
    EXPECT_GE(terms_, 2);
    int leading = -1;
    for (int i = 0; i < 3; ++i) {
      if (Leads(i)) leading = i;
    }
    ASSERT_GE(leading, 0) << "nobody leads though nothing has failed for long";
    for (int i = 0; i < 3; ++i) {
      if (i == leading) continue;
      EXPECT_EQ(candidates_[i].told, absl::StrCat("address-", leading));
    }
  }
  int terms() const { return terms_; }

 private:
  struct Candidate {
    std::unique_ptr<ElectionMachine> machine;
    int life = 0;            // of the process: what belongs to an earlier one is dropped
    double clock_speed = 1;  // 1: as real time
    absl::Duration clock_offset;
    absl::Duration paused_until;
    int wake = 0;  // which of its wake-ups counts
    std::string told;
  };

  double Chance() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  absl::Duration Within(absl::Duration limit) { return limit * Chance(); }
  bool faulty() const { return agenda_.now() < kFaultsEnd; }

  absl::Duration ClockOf(const Candidate& candidate) const {
    return candidate.clock_offset + agenda_.now() * candidate.clock_speed;
  }
  bool Leads(int i) {
    const std::optional<absl::Duration> until = candidates_[i].machine->leads_until();
    return until.has_value() && ClockOf(candidates_[i]) < *until;
  }

  void Begin(int i) {
    Candidate& candidate = candidates_[i];
    ++candidate.life;
    candidate.clock_speed = 0.8 + 0.5 * Chance();
    candidate.clock_offset = Within(absl::Hours(1));
    candidate.paused_until = agenda_.now();
    candidate.told.clear();
    etcd_.watches.erase(i);
    candidate.machine = std::make_unique<ElectionMachine>(ElectionMachine::Options{
        .incarnation = absl::StrCat(i, "-", candidate.life), .lease_time = kLease});
    Perform(i, candidate.machine->Start(ClockOf(candidate)));
  }

  // An event reaches a candidate, when its process runs.
  void Deliver(int i, int life, const ElectionEvent& event) {
    Candidate& candidate = candidates_[i];
    if (life != candidate.life) return;
    if (candidate.paused_until > agenda_.now()) {
      agenda_.After(candidate.paused_until - agenda_.now(),
                    [this, i, life, event] { Deliver(i, life, event); });
      return;
    }
    Perform(i, candidate.machine->Handle(event, ClockOf(candidate)));
  }

  // A call: `work` is done at etcd, sooner, later or never, and the answer comes, or `failure` when
  // that takes too long.
  void Call(int i, std::function<ElectionEvent()> work, const ElectionEvent& failure) {
    const int life = candidates_[i].life;
    const bool is_bad = faulty() && Chance() < 0.15;
    const absl::Duration limit = kCallLimit / candidates_[i].clock_speed;
    const absl::Duration there = Within(is_bad ? 3 * kCallLimit : absl::Milliseconds(20));
    const absl::Duration back = Within(is_bad ? kCallLimit : absl::Milliseconds(20));
    const bool is_lost = is_bad && Chance() < 0.3;
    const bool is_late = is_lost || there + back > limit || etcd_away_until_ > agenda_.now();
    if (is_late) agenda_.After(limit, [this, i, life, failure] { Deliver(i, life, failure); });
    if (is_lost) return;
    const absl::Duration away = std::max(etcd_away_until_ - agenda_.now(), absl::ZeroDuration());
    agenda_.After(there + away, [this, i, life, work = std::move(work), back, is_late] {
      etcd_.ExpireLeases();
      const ElectionEvent answer = work();
      if (is_late) return;
      agenda_.After(back, [this, i, life, answer] { Deliver(i, life, answer); });
    });
  }

  void Perform(int i, const std::vector<ElectionAction>& actions) {
    for (const ElectionAction& action : actions) {
      std::visit([this, i](const auto& each) { Do(i, each); }, action);
    }
  }
  void Do(int i, const ReadElection&) {
    Call(
        i, [this] { return ElectionRead{etcd_.Read(), /*clock_epoch=*/0}; },
        StepFailed{absl::UnavailableError("lost")});
  }
  void Do(int i, const ObtainLease&) {
    const absl::Duration asked_at = ClockOf(candidates_[i]);
    Call(
        i,
        [this, asked_at] {
          etcd_.leases[++etcd_.leases_granted] = agenda_.now() + kLease;
          return LeaseGranted{etcd_.leases_granted, asked_at};
        },
        StepFailed{absl::UnavailableError("lost")});
  }
  void Do(int i, const Campaign& campaign) {
    const LeaderEntry entry{.address = absl::StrCat("address-", i),
                            .incarnation = absl::StrCat(i, "-", candidates_[i].life),
                            .lease = campaign.lease};
    Call(
        i,
        [this, entry, campaign]() -> ElectionEvent {
          const std::optional<int64_t> fence =
              etcd_.Campaign(entry, campaign.epoch, campaign.epoch_revision);
          if (!fence.has_value()) return CampaignLost{};
          return CampaignWon{*fence};
        },
        StepFailed{absl::UnavailableError("lost")});
  }
  void Do(int i, const RenewLease& renew) {
    const absl::Duration asked_at = ClockOf(candidates_[i]);
    Call(
        i,
        [this, asked_at, renew]() -> ElectionEvent {
          const auto lease = etcd_.leases.find(renew.lease);
          if (lease == etcd_.leases.end()) return LeaseExpired{renew.lease};
          lease->second = agenda_.now() + kLease;
          return LeaseRenewed{renew.lease, asked_at};
        },
        RenewalFailed{renew.lease});
  }
  void Do(int i, const RevokeLease& revoke) {
    Call(
        i,
        [this, revoke] {
          etcd_.End(revoke.lease);
          return LeaseRevoked{};
        },
        StepFailed{absl::UnavailableError("lost")});
  }
  void Do(int i, const WatchLeader& watch) {
    const int life = candidates_[i].life;
    const auto tell = [this, i, life] {
      if (faulty() && Chance() < 0.2) return;  // lost
      agenda_.After(Within(absl::Milliseconds(50)),
                    [this, i, life] { Deliver(i, life, LeaderGone{}); });
    };
    etcd_.watches[i] = tell;
    if (!etcd_.leader.has_value() && etcd_.revision >= watch.from_revision) tell();
  }
  void Do(int i, const StopWatching&) { etcd_.watches.erase(i); }
  void Do(int i, const WakeAt& wake) {
    Candidate& candidate = candidates_[i];
    const int number = ++candidate.wake;
    const absl::Duration delay =
        std::max((wake.time - ClockOf(candidate)) / candidate.clock_speed, absl::ZeroDuration());
    agenda_.After(delay + absl::Microseconds(1), [this, i, life = candidate.life, number] {
      if (candidates_[i].wake == number) Deliver(i, life, TimeHasPassed{});
    });
  }
  void Do(int i, const TellLeading& leading) {
    EXPECT_GT(leading.epoch, last_epoch_);
    last_epoch_ = leading.epoch;
    ++terms_;
    candidates_[i].told = "itself";
  }
  void Do(int i, const TellNotLeading& told) {
    EXPECT_FALSE(Leads(i)) << "told that it does not lead, though it does";
    candidates_[i].told = told.leader.value_or("");
  }
  void Do(int i, const TellResigned&) { Begin(i); }

  void Check() {
    int leading = 0;
    for (int i = 0; i < 3; ++i) leading += Leads(i) ? 1 : 0;
    EXPECT_LE(leading, 1) << "at " << agenda_.now();
  }

  void Tick() {
    etcd_.ExpireLeases();
    Check();
    agenda_.After(absl::Milliseconds(100), [this] { Tick(); });
  }
  void Disturb() {
    if (!faulty()) return;
    const int i = static_cast<int>(3 * Chance());
    const double what = Chance();
    if (what < 0.2) {
      Begin(i);
    } else if (what < 0.5) {
      candidates_[i].paused_until = agenda_.now() + Within(absl::Seconds(12));
    } else if (what < 0.7) {
      etcd_away_until_ = agenda_.now() + Within(absl::Seconds(8));
    } else if (what < 0.8) {
      Deliver(i, candidates_[i].life, ResignRequested{});
    }
    agenda_.After(Within(absl::Seconds(6)), [this] { Disturb(); });
  }

  std::mt19937_64 random_;
  Agenda agenda_;
  SimulatedEtcd etcd_;
  Candidate candidates_[3];
  absl::Duration etcd_away_until_;
  uint64_t last_epoch_ = 0;
  int terms_ = 0;
};

TEST(ElectionSimulation, NeverDoTwoLeadAndSoonAfterTheLastFaultOneDoes) {
  int64_t terms = 0;
  for (int64_t i = 0; i < RandomCases(200); ++i) {
    const uint64_t seed = FromEnvironment("CROSSMESH_TEST_SEED", 1000 + i);
    SCOPED_TRACE(absl::StrCat("CROSSMESH_TEST_SEED=", seed));
    Simulation simulation(seed);
    simulation.Run();
    terms += simulation.terms();
    if (testing::Test::HasFailure()) return;
  }
  RecordProperty("terms", static_cast<int>(terms));
}

}  // namespace
}  // namespace crossmesh
