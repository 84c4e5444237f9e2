#include "controller/leadership/etcd/leader_election.h"

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/testing/patience.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "controller/leadership/etcd/election_calls.h"
#include "controller/store/epoch.h"
#include "controller/store/etcd/etcd_store.h"
#include "controller/store/etcd/testing/etcd_process.h"
#include "controller/store/etcd/testing/unix_proxy.h"

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

// Of leases. Longer ones, as controllers have, and more takeovers: CROSSMESH_LEASE_SECONDS=5
// CROSSMESH_TAKEOVERS=9.
absl::Duration LeaseTime() { return absl::Seconds(FromEnvironment("CROSSMESH_LEASE_SECONDS", 1)); }
int Takeovers() { return static_cast<int>(FromEnvironment("CROSSMESH_TAKEOVERS", 2)); }

struct Term {
  uint64_t epoch = 0;
  int64_t fence = 0;
  absl::Duration begun;
  absl::Duration ended = absl::InfiniteDuration();
};

// A controller, as far as its leadership goes.
class Candidate {
 public:
  struct Options {
    std::string endpoint;
    std::string identity;
    std::string address;
    absl::Duration lease_time = LeaseTime();
  };
  explicit Candidate(const Options& options) {
    absl::StatusOr<std::unique_ptr<LeaderElection>> election = LeaderElection::Start(
        {.etcd = {.endpoints = {options.endpoint}},
         .identity = options.identity,
         .address = options.address,
         .lease_time = options.lease_time},
        {.on_leading = [this](uint64_t epoch, int64_t fence) { Begin(epoch, fence); },
         .on_not_leading = [this](const std::optional<std::string>& leader,
                                  const absl::Status& why) { End(leader, why); }});
    EXPECT_OK(election.status());
    election_ = *std::move(election);
  }

  LeaderElection& election() { return *election_; }
  // As if its process were killed: nothing is told to etcd.
  void Kill() { election_.reset(); }

  // Waits until it leads in another term than the first `terms`.
  Term AwaitTerm(size_t terms = 0) {
    const MutexLock lock(mutex_);
    for (const Patience patience; terms_.size() <= terms; patience.Check()) WaitLocked();
    return terms_.back();
  }
  // Waits until its last term has ended.
  Term AwaitEnd() {
    const MutexLock lock(mutex_);
    const auto lasts = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return terms_.empty() || terms_.back().ended == absl::InfiniteDuration();
    };
    for (const Patience patience; lasts(); patience.Check()) WaitLocked();
    return terms_.back();
  }
  void AwaitLeader(const std::string& leader) {
    const MutexLock lock(mutex_);
    for (const Patience patience; leader_ != leader; patience.Check()) WaitLocked();
  }
  absl::Status AwaitError() {
    const MutexLock lock(mutex_);
    for (const Patience patience; why_.ok(); patience.Check()) WaitLocked();
    return why_;
  }
  size_t terms() {
    const MutexLock lock(mutex_);
    return terms_.size();
  }

 private:
  void WaitLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    changed_.WaitFor(mutex_, absl::Seconds(1));
  }
  void Begin(uint64_t epoch, int64_t fence) {
    const MutexLock lock(mutex_);
    terms_.push_back({.epoch = epoch, .fence = fence, .begun = clock_.Monotonic()});
    changed_.SignalAll();
  }
  void End(const std::optional<std::string>& leader, const absl::Status& why) {
    const MutexLock lock(mutex_);
    if (!terms_.empty()) terms_.back().ended = std::min(terms_.back().ended, clock_.Monotonic());
    leader_ = leader.value_or("");
    why_ = why;
    changed_.SignalAll();
  }

  const RealClock clock_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<Term> terms_ ABSL_GUARDED_BY(mutex_);
  std::string leader_ ABSL_GUARDED_BY(mutex_);
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<LeaderElection> election_;
};

class LeaderElectionTest : public testing::Test {
 protected:
  std::unique_ptr<EtcdStore> OpenStore() {
    absl::StatusOr<std::unique_ptr<EtcdStore>> store =
        EtcdStore::Open({.etcd = etcd_.options(), .timeout = absl::Milliseconds(500)});
    EXPECT_OK(store.status());
    return *std::move(store);
  }
  std::unique_ptr<Candidate> NewCandidate(const std::string& address) {
    return NewCandidate(address, etcd_.endpoint());
  }
  std::unique_ptr<Candidate> NewCandidate(const std::string& address, const std::string& endpoint) {
    return std::make_unique<Candidate>(
        Candidate::Options{.endpoint = endpoint, .identity = identity_, .address = address});
  }
  // Lets some of a renewal's period pass: a takeover's length depends on when in it the leader
  // ends.
  void PassSomeTime() {
    Mutex mutex;
    CondVar never;
    const absl::Duration end =
        clock_.Monotonic() +
        LeaseTime() / 3 * std::uniform_real_distribution<double>(0, 1)(random_);
    const MutexLock lock(mutex);
    while (clock_.Monotonic() < end) never.WaitFor(mutex, end - clock_.Monotonic());
  }
  // Of the takeovers of a test, in the way in which the test brings them about.
  void Report(const std::vector<absl::Duration>& takeovers, absl::Duration limit) {
    const absl::Duration worst = *std::max_element(takeovers.begin(), takeovers.end());
    std::cout << takeovers.size() << " takeovers with a lease of " << LeaseTime() << ", worst "
              << worst << "\n";
    EXPECT_LT(worst, limit);
  }

  const RealClock clock_;
  std::mt19937_64 random_{FromEnvironment("CROSSMESH_TEST_SEED", 1)};
  EtcdProcess etcd_;
  const std::unique_ptr<EtcdStore> store_ = OpenStore();
  const std::string identity_ = store_->cluster().identity;
};

TEST_F(LeaderElectionTest, OneLeadsAndTheOtherOnesKnowWhere) {
  const std::unique_ptr<Candidate> first = NewCandidate("first:1");
  const Term term = first->AwaitTerm();
  const std::unique_ptr<Candidate> second = NewCandidate("second:1");
  second->AwaitLeader("first:1");
  EXPECT_TRUE(first->election().leads());
  EXPECT_FALSE(second->election().leads());
  EXPECT_EQ(second->terms(), 0);
  EXPECT_LE(term.epoch, EpochAt(clock_.Now()));
  EXPECT_GT(term.epoch, EpochAt(clock_.Now() - absl::Minutes(5)));
}

TEST_F(LeaderElectionTest, ALeaderStaysWhileItRenewsItsLease) {
  const std::unique_ptr<Candidate> leader = NewCandidate("first:1");
  const Term term = leader->AwaitTerm();
  const std::unique_ptr<Candidate> other = NewCandidate("second:1");
  other->AwaitLeader("first:1");
  while (clock_.Monotonic() < term.begun + 2 * LeaseTime()) PassSomeTime();
  EXPECT_TRUE(leader->election().leads());
  EXPECT_EQ(leader->terms(), 1);
  EXPECT_EQ(other->terms(), 0);
}

TEST_F(LeaderElectionTest, WhenALeaderResignsTheNextOneLeadsInASecond) {
  std::vector<absl::Duration> takeovers;
  std::unique_ptr<Candidate> leader = NewCandidate("0:1");
  Term term = leader->AwaitTerm();
  for (int i = 1; i <= 9; ++i) {
    const std::string address = absl::StrCat(i, ":1");
    std::unique_ptr<Candidate> next = NewCandidate(address);
    next->AwaitLeader(absl::StrCat(i - 1, ":1"));
    const absl::Duration start = clock_.Monotonic();
    leader->election().Resign(absl::Seconds(10));
    const Term next_term = next->AwaitTerm();
    takeovers.push_back(next_term.begun - start);
    EXPECT_LE(leader->AwaitEnd().ended, next_term.begun);
    EXPECT_GT(next_term.epoch, term.epoch);
    EXPECT_FALSE(leader->election().leads());
    leader = std::move(next);
    term = next_term;
  }
  Report(takeovers, absl::Seconds(1));
}

TEST_F(LeaderElectionTest, WhenALeaderIsKilledTheNextOneLeadsWhenItsLeaseEnds) {
  std::vector<absl::Duration> takeovers;
  std::unique_ptr<Candidate> leader = NewCandidate("0:1");
  Term term = leader->AwaitTerm();
  for (int i = 1; i <= Takeovers(); ++i) {
    std::unique_ptr<Candidate> next = NewCandidate(absl::StrCat(i, ":1"));
    next->AwaitLeader(absl::StrCat(i - 1, ":1"));
    PassSomeTime();
    const absl::Duration start = clock_.Monotonic();
    leader->Kill();
    const Term next_term = next->AwaitTerm();
    takeovers.push_back(next_term.begun - start);
    EXPECT_GT(next_term.epoch, term.epoch);
    leader = std::move(next);
    term = next_term;
  }
  Report(takeovers, LeaseTime() + absl::Seconds(1));
}

// From outside, a leader that is stopped looks the same. When it is reached again it knows that
// another one leads, and nothing that it writes is accepted.
TEST_F(LeaderElectionTest, ALeaderThatIsCutOffStepsDownBeforeTheNextOneLeads) {
  std::vector<absl::Duration> takeovers;
  for (int i = 1; i <= Takeovers(); ++i) {
    UnixProxy proxy(etcd_.socket());
    const std::unique_ptr<Candidate> old = NewCandidate("old:1", proxy.endpoint());
    const Term old_term = old->AwaitTerm();
    const std::unique_ptr<EtcdStore> old_store = OpenStore();
    old_store->BeginTerm(old_term.fence, old_term.epoch, [](absl::Status) {});
    ASSERT_OK(old_store->Commit({.epoch = old_term.epoch, .writes = {{"a", "1"}}}).status());
    const std::unique_ptr<Candidate> next = NewCandidate("next:1");
    next->AwaitLeader("old:1");
    PassSomeTime();
    const absl::Duration start = clock_.Monotonic();
    proxy.Hold();
    const Term next_term = next->AwaitTerm();
    takeovers.push_back(next_term.begun - start);
    EXPECT_LT(old->AwaitEnd().ended, next_term.begun);
    EXPECT_GT(next_term.epoch, old_term.epoch);
    EXPECT_FALSE(old->election().leads());
    EXPECT_THAT(old_store->Commit({.epoch = old_term.epoch, .writes = {{"a", "late"}}}),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("is fenced")));
    proxy.Heal();
    old->AwaitLeader("next:1");
    EXPECT_EQ(old->terms(), 1);
    old->election().Resign(absl::Seconds(10));
    next->election().Resign(absl::Seconds(10));
  }
  Report(takeovers, LeaseTime() + absl::Seconds(1));
}

TEST_F(LeaderElectionTest, WhileEtcdIsStoppedALeaderStepsDownAndLeadsAgainSoonAfter) {
  const std::unique_ptr<Candidate> leader = NewCandidate("only:1");
  const Term term = leader->AwaitTerm();
  const absl::Duration stopped = clock_.Monotonic();
  etcd_.Stop();
  const Term ended = leader->AwaitEnd();
  EXPECT_LT(ended.ended - stopped, LeaseTime() * 2 / 3 + absl::Milliseconds(300));
  EXPECT_FALSE(leader->election().leads());
  while (clock_.Monotonic() < stopped + LeaseTime() * 4 / 5) PassSomeTime();
  const absl::Duration continued = clock_.Monotonic();
  etcd_.Continue();
  const Term next = leader->AwaitTerm(1);
  std::cout << "leads " << next.begun - continued << " after etcd goes on\n";
  EXPECT_LT(next.begun - continued, absl::Seconds(1));
  EXPECT_GT(next.epoch, term.epoch);
}

TEST_F(LeaderElectionTest, AfterEtcdWasKilledALeaderDoesNotWaitForItsOwnOldLease) {
  Candidate leader({.endpoint = etcd_.endpoint(),
                    .identity = identity_,
                    .address = "only:1",
                    .lease_time = absl::Seconds(3)});
  const Term term = leader.AwaitTerm();
  etcd_.Kill();
  leader.AwaitEnd();
  etcd_.Start();
  const absl::Duration started = clock_.Monotonic();
  const Term next = leader.AwaitTerm(1);
  std::cout << "leads " << next.begun - started << " after etcd is back\n";
  EXPECT_LT(next.begun - started, absl::Milliseconds(2500));
  EXPECT_GT(next.epoch, term.epoch);
}

TEST_F(LeaderElectionTest, WhileEtcdIsAwayACandidateSaysSoAndLeadsWhenItComes) {
  etcd_.Kill();
  const std::unique_ptr<Candidate> candidate = NewCandidate("first:1");
  EXPECT_THAT(candidate->AwaitError(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("etcd at unix:")));
  etcd_.Start();
  candidate->AwaitTerm();
}

TEST_F(LeaderElectionTest, ACampaignIsWonOnlyInItsClusterWithoutALeaderAndWithNoEpochSince) {
  const EtcdKeys keys("default");
  const std::unique_ptr<EtcdClient> client = etcd_.NewClient();
  const auto txn = [&](const etcdserverpb::TxnRequest& request) {
    return *client->Await(&EtcdClient::Txn, request, absl::Seconds(10));
  };
  const auto epoch_revision = [&] {
    return ReadingOf(keys, txn(ReadElectionRequest(keys, identity_)))->epoch_revision;
  };
  const auto wins = [&](const std::string& identity, int64_t revision) {
    return txn(CampaignRequest({.keys = keys,
                                .identity = identity,
                                .leader = {.address = "a:1", .incarnation = "i", .lease = 0},
                                .epoch = 7,
                                .epoch_revision = revision}))
        .succeeded();
  };
  EXPECT_FALSE(wins("another", epoch_revision()));
  EXPECT_FALSE(wins(identity_, epoch_revision() - 1));
  EXPECT_TRUE(wins(identity_, epoch_revision()));
  EXPECT_FALSE(wins(identity_, epoch_revision()));
  const ElectionReading reading = *ReadingOf(keys, txn(ReadElectionRequest(keys, identity_)));
  EXPECT_EQ(reading.leader, (LeaderEntry{.address = "a:1", .incarnation = "i", .lease = 0}));
  EXPECT_EQ(reading.epoch, 7);
}

TEST_F(LeaderElectionTest, NobodyLeadsInTheEtcdOfAnotherCluster) {
  Candidate candidate({.endpoint = etcd_.endpoint(), .identity = "another", .address = "first:1"});
  EXPECT_THAT(candidate.AwaitError(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("name the etcd of")));
  candidate.election().Resign(absl::Seconds(10));
  EXPECT_EQ(candidate.terms(), 0);
}

TEST_F(LeaderElectionTest, ACandidateThatResignsWhileEtcdIsAwayDoesNotWaitForIt) {
  const std::unique_ptr<Candidate> leader = NewCandidate("first:1");
  leader->AwaitTerm();
  etcd_.Stop();
  const absl::Duration start = clock_.Monotonic();
  leader->election().Resign(absl::Seconds(30));
  EXPECT_LT(clock_.Monotonic() - start, absl::Seconds(5));
  EXPECT_FALSE(leader->election().leads());
  etcd_.Continue();
}

TEST(LeaderElectionOptions, WhatCannotWorkIsRefused) {
  const auto status_with = [](std::string address, absl::Duration lease_time) {
    return LeaderElection::Start({.etcd = {.endpoints = {"127.0.0.1:1"}},
                                  .address = std::move(address),
                                  .lease_time = lease_time},
                                 {})
        .status();
  };
  EXPECT_THAT(status_with("", absl::Seconds(5)), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(status_with("a b", absl::Seconds(5)), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(status_with("a:1", absl::Milliseconds(1500)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("whole seconds")));
}

}  // namespace
}  // namespace crossmesh
