#include "controller/store/sqlite/sqlite_upkeep.h"

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/event_fd.h"
#include "common/base/log.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

namespace crossmesh {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Nothing is copied by itself but the first time.
constexpr absl::Duration kNever = absl::Hours(1000);

class SqliteUpkeepTest : public testing::Test {
 protected:
  std::unique_ptr<SqliteUpkeep> Start(absl::Duration every = kNever, int64_t kept = 3) {
    absl::StatusOr<std::unique_ptr<SqliteUpkeep>> upkeep = SqliteUpkeep::Start(
        *store_, clock_, {.backup_folder = backups_, .backup_every = every, .backups_kept = kept});
    CHECK_OK(upkeep);
    return *std::move(upkeep);
  }
  void Put(const std::string& key, const std::string& value) {
    CHECK_OK(store_->Commit({.epoch = 1, .writes = {{key, value}}}));
  }
  std::set<std::string> Files() const {
    std::set<std::string> files;
    for (const auto& entry : fs::directory_iterator(backups_)) {
      files.insert(entry.path().filename());
    }
    return files;
  }
  std::string ValueIn(const std::string& backup, const std::string& key) {
    const std::string folder = folder_.PathOf(absl::StrCat("restored", ++restored_));
    CHECK_OK(SqliteStore::Restore(backup, {.folder = folder, .clock = clock_}));
    const auto store = SqliteStore::Open({.folder = folder, .clock = clock_, .reserve_bytes = 0});
    CHECK_OK(store);
    const absl::StatusOr<StoredObject> object = (*store)->Get(key);
    return object.ok() ? object->value : "";
  }

  const TemporaryFolder folder_;
  const std::string backups_ = folder_.PathOf("deeper/backups");
  const RealClock clock_;
  int restored_ = 0;
  std::atomic<int64_t> free_bytes_ = int64_t{1} << 40;
  std::vector<LogRecord> log_;
  const ScopedLogSink sink_{[this](const LogRecord& record) { log_.push_back(record); }};
  const std::unique_ptr<SqliteStore> store_ =
      *SqliteStore::Open({.folder = folder_.PathOf("state"),
                          .clock = clock_,
                          .reserve_bytes = 1 << 20,
                          .free_bytes = [this] { return free_bytes_.load(); }});
};

TEST_F(SqliteUpkeepTest, ACopyIsRestoredWithAllThatWasCommitted) {
  Put("a", "1");
  const auto upkeep = Start();
  ASSERT_OK_AND_ASSIGN(const std::string file, upkeep->BackUp());
  EXPECT_EQ(ValueIn(file, "a"), "1");
  EXPECT_TRUE(upkeep->condition().backed_up_at.has_value());
  EXPECT_EQ(upkeep->condition().backup_failures, 0);
}

TEST_F(SqliteUpkeepTest, TheNewestCopiesAreKeptAndNothingElseIsTouched) {
  fs::create_directories(backups_);
  std::ofstream(backups_ + "/notes.txt") << "mine";
  std::ofstream(backups_ + "/store-x.db.partial") << "half";
  const auto upkeep = Start();
  std::string last;
  for (int i = 0; i < 6; ++i) {
    Put("a", absl::StrCat(i));
    ASSERT_OK_AND_ASSIGN(last, upkeep->BackUp());
  }
  const std::set<std::string> files = Files();
  EXPECT_THAT(files, SizeIs(4));
  EXPECT_TRUE(files.contains("notes.txt"));
  EXPECT_TRUE(files.contains(fs::path(last).filename()));
  EXPECT_EQ(ValueIn(last, "a"), "5");
}

TEST_F(SqliteUpkeepTest, WhatHasNotChangedIsNotCopiedAgain) {
  Put("a", "1");
  const auto upkeep = Start();
  ASSERT_OK_AND_ASSIGN(const std::string first, upkeep->BackUp());
  EXPECT_EQ(*upkeep->BackUp(), first);
  fs::remove(first);
  ASSERT_OK_AND_ASSIGN(const std::string second, upkeep->BackUp());
  EXPECT_TRUE(fs::exists(second)) << "somebody has deleted the first";
  Put("a", "2");
  ASSERT_OK_AND_ASSIGN(const std::string third, upkeep->BackUp());
  EXPECT_NE(third, second);
}

TEST_F(SqliteUpkeepTest, CopiesAreMadeAsTimeGoesBy) {
  // Each round waits for the copy of its own commit.
  const auto upkeep = Start(absl::Milliseconds(1));
  for (int i = 0; i < 3; ++i) {
    Put("a", absl::StrCat(i));
    const std::string suffix = absl::StrCat("-", store_->revision(), ".db");
    const absl::Time deadline = clock_.Now() + absl::Seconds(30);
    bool is_there = false;
    while (!is_there && clock_.Now() < deadline) {
      for (const std::string& file : Files()) is_there |= absl::EndsWith(file, suffix);
      poll(nullptr, 0, 1);
    }
    EXPECT_TRUE(is_there) << i;
  }
}

TEST_F(SqliteUpkeepTest, AProcessThatBeginsGoesOnWithTheTimeOfTheLast) {
  Put("a", "1");
  {
    const auto upkeep = Start();
    ASSERT_OK(upkeep->BackUp());
  }
  const std::set<std::string> before = Files();
  Put("a", "2");
  const auto upkeep = Start();
  EXPECT_TRUE(upkeep->condition().backed_up_at.has_value());
  EXPECT_LT(clock_.Now() - *upkeep->condition().backed_up_at, absl::Minutes(1));
  EXPECT_EQ(Files(), before);
}

TEST_F(SqliteUpkeepTest, ACopyThatFailsIsCountedAndLeavesNothing) {
  ASSERT_OK(Start()->BackUp());
  const auto upkeep = Start();  // which copies nothing by itself: there is one of just now
  fs::remove_all(backups_);
  std::ofstream(backups_) << "no folder";
  Put("a", "1");
  EXPECT_FALSE(upkeep->BackUp().ok());
  EXPECT_EQ(upkeep->condition().backup_failures, 1);
  fs::remove(backups_);
  fs::create_directories(backups_);
  EXPECT_OK(upkeep->BackUp());
  EXPECT_THAT(Files(), SizeIs(1));
}

TEST_F(SqliteUpkeepTest, AFolderThatIsNoneIsRefused) {
  const std::string file = folder_.PathOf("file");
  std::ofstream(file) << "x";
  const absl::Status status =
      SqliteUpkeep::Start(*store_, clock_, {.backup_folder = file + "/backups"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr(file));
  ASSERT_OK_AND_ASSIGN(const auto upkeep, SqliteUpkeep::Start(*store_, clock_, {}));
  EXPECT_THAT(upkeep->BackUp().status().message(), HasSubstr("--backup-dir"));
}

TEST_F(SqliteUpkeepTest, TheThreadThatWritesAnswersAndWritesNothing) {
  Put("a", "1");
  ASSERT_OK_AND_ASSIGN(const auto upkeep, SqliteUpkeep::Start(*store_, clock_, {}));
  const int64_t revision = store_->revision();
  for (const int64_t free : {int64_t{1} << 40, int64_t{0}}) {
    free_bytes_ = free;
    ASSERT_OK_AND_ASSIGN(EventFd answered, EventFd::Create());
    upkeep->Ask([&] { answered.Signal(); });
    pollfd waiting = {.fd = answered.fd(), .events = POLLIN};
    EXPECT_EQ(poll(&waiting, 1, /*timeout=*/20'000), 1) << free;
    EXPECT_TRUE(answered.Drain()) << free;  // and is seen to be done with it
  }
  EXPECT_EQ(store_->revision(), revision);
}

}  // namespace
}  // namespace crossmesh
