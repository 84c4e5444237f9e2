// What the disk may do to a store: power that goes, syncs that fail, bits that change.

#include "common/base/fake_clock.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "controller/store/sqlite/sqlite_store.h"
#include "controller/store/sqlite/testing/simulated_disk.h"
#include "controller/store/store_error.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using Objects = std::map<std::string, std::string>;

class StoreFaults : public testing::Test {
 protected:
  SqliteStore::Options OptionsOn(const SimulatedDisk& disk) {
    return {.folder = folder_.PathOf("state"),
            .clock = clock_,
            .commits_kept = 8,
            .reserve_bytes = 0,
            .vfs = disk.vfs(),
            .on_fatal = [this](const absl::Status&) { ++fatal_; }};
  }

  // What the store has; an error where it says so.
  static absl::StatusOr<Objects> ReadAll(const SqliteStore& store) {
    const absl::StatusOr<std::vector<StoredObject>> objects = store.List("", "", 1'000'000);
    if (!objects.ok()) return objects.status();
    Objects all;
    for (const StoredObject& object : *objects) all[object.key] = object.value;
    return all;
  }

  const TemporaryFolder folder_;
  FakeClock clock_;
  int fatal_ = 0;
  // Failures are what these tests are about: their log lines are not looked at.
  const ScopedLogSink no_log_{[](const LogRecord&) {}};
};

void Apply(const StoreTransaction& transaction, Objects& objects) {
  for (const StoreTransaction::Write& write : transaction.writes) {
    if (write.value.has_value()) {
      objects[write.key] = *write.value;
    } else {
      objects.erase(write.key);
    }
  }
}

// Transactions one after the other, and what may be found of them.
class RandomLoad {
 public:
  explicit RandomLoad(uint64_t seed) : random_(seed), possible_(1) {}

  StoreTransaction Next() {
    StoreTransaction transaction;
    const size_t writes = 1 + random_() % 4;
    for (size_t i = 0; i < writes; ++i) {
      const std::string key = absl::StrCat("k", random_() % 12, "/", i);
      const size_t bytes_max = random_() % 8 == 0 ? 20'000 : 200;
      const std::string value(random_() % bytes_max, static_cast<char>('a' + random_() % 26));
      const bool is_delete = random_() % 4 == 0;
      transaction.writes.push_back({key, is_delete ? std::nullopt : std::optional(value)});
    }
    return transaction;
  }

  // So many at most, of which some wait at once, until one fails.
  void Run(SqliteStore& store, int64_t transactions) {
    for (bool all_done = true; all_done && transactions > 0;) {
      std::vector<StoreTransaction> together(1 + random_() % 6);
      for (StoreTransaction& transaction : together) transaction = Next();
      transactions -= std::ssize(together);
      const std::vector<bool> done = CommitAll(store, together);
      for (size_t i = 0; i < together.size(); ++i) {
        Remember(together[i], done[i]);
        all_done = all_done && done[i];
      }
    }
  }

  // Goes on from what was found.
  testing::AssertionResult Find(const Objects& found) {
    if (std::ranges::find(possible_, found) == possible_.end()) {
      return testing::AssertionFailure() << "found none of " << possible_.size() << " states";
    }
    possible_ = {found};
    return testing::AssertionSuccess();
  }

  uint64_t Random() { return random_(); }

 private:
  // Which were acknowledged.
  static std::vector<bool> CommitAll(SqliteStore& store,
                                     const std::vector<StoreTransaction>& transactions) {
    Mutex mutex;
    CondVar is_done;
    std::vector<bool> acknowledged(transactions.size());
    size_t answered = 0;
    for (size_t i = 0; i < transactions.size(); ++i) {
      store.CommitThen(transactions[i], [&, i](const absl::StatusOr<int64_t>& result) {
        const MutexLock lock(mutex);
        acknowledged[i] = result.ok();
        ++answered;
        is_done.SignalAll();
      });
    }
    const MutexLock lock(mutex);
    while (answered < transactions.size()) is_done.Wait(mutex);
    return acknowledged;
  }

  void Remember(const StoreTransaction& transaction, bool is_acknowledged) {
    std::vector<Objects> next = possible_;
    for (Objects& objects : next) Apply(transaction, objects);
    if (is_acknowledged) possible_.clear();
    possible_.insert(possible_.end(), next.begin(), next.end());
  }

  std::mt19937_64 random_;
  std::vector<Objects> possible_;
};

TEST_F(StoreFaults, NothingAcknowledgedIsLostAndNothingIsHalfWhenThePowerGoes) {
  const uint64_t first_seed = FromEnvironment("CROSSMESH_TEST_SEED", 1);
  for (int64_t i = 0; i < RandomCases(40); ++i) {
    const uint64_t seed = first_seed + i;
    SCOPED_TRACE(absl::StrCat("CROSSMESH_TEST_SEED=", seed, " CROSSMESH_CASES=1"));
    SimulatedDisk disk(seed);
    RandomLoad load(seed);
    for (int round = 0; round < 6; ++round) {
      clock_.Advance(absl::Minutes(2));
      {
        disk.PowerOn();
        absl::StatusOr<std::unique_ptr<SqliteStore>> store = SqliteStore::Open(OptionsOn(disk));
        ASSERT_OK(store.status());
        ASSERT_OK_AND_ASSIGN(const Objects found, ReadAll(**store));
        ASSERT_TRUE(load.Find(found));
        switch (load.Random() % 3) {
          case 0:
            disk.PowerOffAfter(static_cast<int64_t>(load.Random() % 120));
            break;
          case 1:
            disk.FailSyncsAfter(static_cast<int64_t>(load.Random() % 20), 1);
            break;
          default:
            disk.FailSyncsAfter(static_cast<int64_t>(load.Random() % 20), 2);
            break;
        }
        load.Run(**store, 60);
        if (!disk.is_off()) disk.PowerOff();
      }
    }
  }
}

TEST_F(StoreFaults, PowerThatGoesWhileTheStoreIsOpenedLeavesItToBeOpenedAgain) {
  for (int64_t operations = 0; operations < 40; ++operations) {
    SimulatedDisk disk(operations + 1);
    disk.PowerOffAfter(operations);
    SqliteStore::Open(OptionsOn(disk)).IgnoreError();
    disk.PowerOn();
    absl::StatusOr<std::unique_ptr<SqliteStore>> store = SqliteStore::Open(OptionsOn(disk));
    ASSERT_OK(store.status()) << "after " << operations << " operations";
    EXPECT_OK((*store)->Commit({.writes = {{"k", "v"}}}).status());
  }
}

TEST_F(StoreFaults, WhatAProcessHasCommittedBeforeItWasKilledIsThereWhenThePowerGoesAsWell) {
  SimulatedDisk disk(1);
  SqliteStore::Options options = OptionsOn(disk);
  options.has_threads = false;  // which would look at the disk meanwhile
  int64_t operations = 0;
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<SqliteStore> store, SqliteStore::Open(options));
    ASSERT_OK(store->Commit({.writes = {{"a", "1"}}}).status());
    operations = disk.writes() + disk.syncs();
    disk.CutOff();
  }
  EXPECT_EQ(disk.writes() + disk.syncs(), operations);
  disk.PowerOff();
  disk.PowerOn();
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<SqliteStore> store,
                       SqliteStore::Open(OptionsOn(disk)));
  EXPECT_EQ(store->Get("a")->value, "1");
}

TEST_F(StoreFaults, ACommitWhoseSyncFailsIsUnavailableAndTheStoreGoesOn) {
  SimulatedDisk disk(1);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<SqliteStore> store,
                       SqliteStore::Open(OptionsOn(disk)));
  ASSERT_OK(store->Commit({.writes = {{"a", "1"}}}).status());
  disk.FailSyncsAfter(0, 1);
  EXPECT_THAT(store->Commit({.writes = {{"b", "1"}}}), StatusIs(absl::StatusCode::kUnavailable));
  ASSERT_OK(store->Commit({.writes = {{"c", "1"}}}).status());
  ASSERT_OK_AND_ASSIGN(const Objects before, ReadAll(*store));
  EXPECT_THAT(before, testing::Contains(testing::Pair("c", "1")));
  EXPECT_EQ(store->stats().disk_failures, 1);
  EXPECT_EQ(fatal_, 0);
}

TEST_F(StoreFaults, ADiskThatFailsThreeTimesInAMinuteEndsTheStore) {
  SimulatedDisk disk(1);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<SqliteStore> store,
                       SqliteStore::Open(OptionsOn(disk)));
  for (int i = 0; i < 2; ++i) {
    disk.FailSyncsAfter(0, 1);
    EXPECT_THAT(store->Commit({.writes = {{"a", "1"}}}), StatusIs(absl::StatusCode::kUnavailable));
  }
  clock_.Advance(absl::Minutes(2));  // those before do not count any more
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(fatal_, 0);
    disk.FailSyncsAfter(0, 1);
    EXPECT_THAT(store->Commit({.writes = {{"a", "1"}}}), StatusIs(absl::StatusCode::kUnavailable));
  }
  EXPECT_EQ(fatal_, 1);
  EXPECT_TRUE(store->stats().is_read_only);
  EXPECT_THAT(store->Commit({.writes = {{"a", "1"}}}), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(store->Get("a"), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(fatal_, 1);
}

TEST_F(StoreFaults, WhileAFailedCommitIsUncertainNothingIsReadAndThenTheTruth) {
  SimulatedDisk disk(1);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<SqliteStore> store,
                       SqliteStore::Open(OptionsOn(disk)));
  ASSERT_OK(store->Commit({.writes = {{"a", "1"}}}).status());
  disk.SetWritesFail(true);
  EXPECT_THAT(store->Commit({.writes = {{"a", "2"}}}), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(store->Get("a"), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(store->RevisionOf("a"), StatusIs(absl::StatusCode::kUnavailable));
  disk.SetWritesFail(false);
  store->RunDue();
  EXPECT_EQ(store->Get("a")->value, "1");
}

TEST_F(StoreFaults, ADiskWithoutRoomIsFullAndHasNothingHalf) {
  SimulatedDisk disk(1);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<SqliteStore> store,
                       SqliteStore::Open(OptionsOn(disk)));
  ASSERT_OK(store->Commit({.writes = {{"a", "1"}}}).status());
  disk.LimitBytes(disk.bytes() + 8192);
  const StoreTransaction large{.writes = {{"b", std::string(100'000, 'x')}, {"a", "2"}}};
  const absl::Status full = store->Commit(large).status();
  EXPECT_EQ(StoreErrorKindOf(full), StoreErrorKind::kFull) << full;
  EXPECT_EQ(store->Get("a")->value, "1");
  disk.LimitBytes(std::nullopt);
  EXPECT_OK(store->Commit(large).status());
  EXPECT_OK(store->Verify());
  EXPECT_EQ(store->stats().disk_failures, 0);
}

// A store with objects large and small, replaced and deleted, whose log has some of it: as it is
// found when its process was killed.
class StoreWithFlips : public StoreFaults {
 protected:
  void SetUp() override {
    RandomLoad load(/*seed=*/7);
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<SqliteStore> first,
                         SqliteStore::Open(OptionsOn(disk_)));
    for (int i = 0; i < 60; ++i) ASSERT_OK(first->Commit(load.Next()).status());
  }

  void Fill() {
    RandomLoad load(/*seed=*/8);
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<SqliteStore> store,
                         SqliteStore::Open(OptionsOn(disk_)));
    for (int i = 0; i < 20; ++i) ASSERT_OK(store->Commit(load.Next()).status());
    ASSERT_OK_AND_ASSIGN(objects_, ReadAll(*store));
    revision_ = store->revision();
    ASSERT_OK_AND_ASSIGN(commits_, store->CommitsAfter(revision_ - 8, 100, absl::ZeroDuration()));
    image_ = disk_.Save();
  }

  // Of the file as it is in the image.
  int64_t BitsOf(absl::string_view file) const {
    for (const auto& [name, bytes] : image_) {
      if (absl::EndsWith(name, file)) return std::ssize(bytes) * 8;
    }
    return 0;
  }

  enum class Outcome { kRefused, kFoundByRead, kHarmless, kSilent };
  Outcome OpenFlipped(absl::string_view file, int64_t bit) {
    disk_.Load(image_);
    disk_.FlipBit(file, bit);
    const absl::StatusOr<std::unique_ptr<SqliteStore>> store = SqliteStore::Open(OptionsOn(disk_));
    if (!store.ok()) return Outcome::kRefused;
    const absl::StatusOr<Objects> objects = ReadAll(**store);
    const auto commits = (*store)->CommitsAfter(revision_ - 8, 100, absl::ZeroDuration());
    if (!objects.ok() || !commits.ok()) return Outcome::kFoundByRead;
    const bool is_same = *objects == objects_ && *commits == commits_;
    return is_same && (*store)->revision() == revision_ ? Outcome::kHarmless : Outcome::kSilent;
  }

  SimulatedDisk disk_{/*seed=*/1};
  SimulatedDisk::Image image_;
  Objects objects_;
  std::vector<StoredCommit> commits_;
  int64_t revision_ = 0;
};

TEST_F(StoreWithFlips, NoFlippedBitIsSilent) {
  Fill();
  const uint64_t seed = FromEnvironment("CROSSMESH_TEST_SEED", 1);
  std::mt19937_64 random(seed);
  std::map<Outcome, int> outcomes;
  const int64_t cases = RandomCases(1000);
  for (int64_t i = 0; i < cases; ++i) {
    constexpr absl::string_view kFiles[] = {"store.db", "store.db-wal", "watermark"};
    const absl::string_view file = kFiles[random() % std::size(kFiles)];
    const int64_t bit = static_cast<int64_t>(random() % static_cast<uint64_t>(BitsOf(file)));
    const Outcome outcome = OpenFlipped(file, bit);
    ++outcomes[outcome];
    ASSERT_NE(outcome, Outcome::kSilent)
        << "bit " << bit << " of " << file << ", CROSSMESH_TEST_SEED=" << seed << ", case " << i;
  }
  RecordProperty("refused", outcomes[Outcome::kRefused]);
  RecordProperty("found_by_read", outcomes[Outcome::kFoundByRead]);
  RecordProperty("harmless", outcomes[Outcome::kHarmless]);
  // That flips do harm is what this test is about.
  EXPECT_GT(outcomes[Outcome::kRefused], cases / 5);
}

TEST_F(StoreWithFlips, AnEarlierDatabaseIsRefusedAndBothRevisionsAreNamed) {
  const SimulatedDisk::Image before = disk_.Save();
  Fill();
  SimulatedDisk::Image mixed = image_;
  for (const auto& [name, bytes] : before) {
    if (name.find("store.db") != std::string::npos) mixed[name] = bytes;
  }
  disk_.Load(mixed);
  const absl::Status refused = SqliteStore::Open(OptionsOn(disk_)).status();
  EXPECT_EQ(StoreErrorKindOf(refused), StoreErrorKind::kDamaged) << refused;
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(testing::HasSubstr(absl::StrCat("expected revision ", revision_)),
                             testing::HasSubstr("found revision 60")));
}

TEST_F(StoreWithFlips, AnotherHistoryOfTheSameLengthIsRefused) {
  Fill();
  SimulatedDisk other(/*seed=*/2);
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<SqliteStore> store,
                         SqliteStore::Open(OptionsOn(other)));
    while (store->revision() < revision_) ASSERT_OK(store->Commit({}).status());
  }
  SimulatedDisk::Image mixed = image_;
  for (const auto& [name, bytes] : other.Save()) {
    if (name.find("store.db") != std::string::npos) mixed[name] = bytes;
  }
  disk_.Load(mixed);
  EXPECT_THAT(SqliteStore::Open(OptionsOn(disk_)).status(),
              StatusIs(absl::StatusCode::kDataLoss, testing::HasSubstr("another history")));
}

TEST_F(StoreWithFlips, DamageThatIsFoundWhileRunningStopsAllWrites) {
  Fill();
  disk_.Load(image_);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<SqliteStore> store,
                       SqliteStore::Open(OptionsOn(disk_)));
  // A value of which the file has some bytes in a row.
  const auto large = std::ranges::max_element(
      objects_, {}, [](const auto& object) { return object.second.size(); });
  const std::string database = disk_.Read("store.db");
  const size_t at = database.find(large->second.substr(0, 1000));
  ASSERT_NE(at, std::string::npos);
  disk_.FlipBit("store.db", static_cast<int64_t>(at * 8 + 8));
  const absl::Status found = store->Verify();
  EXPECT_EQ(StoreErrorKindOf(found), StoreErrorKind::kDamaged) << found;
  EXPECT_THAT(std::string(found.message()), testing::HasSubstr("table versions, row"));
  EXPECT_THAT(store->Commit({.writes = {{"a", "1"}}}), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_TRUE(store->stats().is_read_only);
  EXPECT_EQ(store->stats().corruptions, 1);
}

}  // namespace
}  // namespace crossmesh
