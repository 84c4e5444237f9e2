#include "controller/store/sqlite/sqlite_store.h"

#include "common/base/check.h"
#include "common/base/fake_clock.h"
#include "common/base/log.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "controller/store/epoch.h"
#include "controller/store/sqlite/schema.h"
#include "controller/store/store_error.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace crossmesh {
namespace {

class SqliteStoreTest : public testing::Test {
 protected:
  SqliteStore::Options Options() {
    return {.folder = folder_.PathOf("state"),
            .clock = clock_,
            .reserve_bytes = 1 << 20,
            .free_bytes = [this] { return free_bytes_.load(); }};
  }
  std::unique_ptr<SqliteStore> Open() {
    absl::StatusOr<std::unique_ptr<SqliteStore>> store = SqliteStore::Open(Options());
    CHECK_OK(store);
    return *std::move(store);
  }
  StoreErrorKind WhyNotOpened() {
    const absl::Status status = SqliteStore::Open(Options()).status();
    why_ = std::string(status.message());
    return StoreErrorKindOf(status).value();
  }
  // Runs statements on the database of no process.
  void Change(const std::string& sql) {
    const auto connection = SqliteConnection::Open({.path = PathOf("store.db")});
    CHECK_OK(connection);
    CHECK_OK((*connection)->Execute(sql));
  }
  std::string PathOf(absl::string_view file) {
    return absl::StrCat(folder_.PathOf("state"), "/", file);
  }
  static void Put(SqliteStore& store, const std::string& key, const std::string& value) {
    CHECK_OK(store.Commit({.writes = {{key, value}}}));
  }

  const TemporaryFolder folder_;
  FakeClock clock_;
  std::atomic<int64_t> free_bytes_ = int64_t{1} << 40;
  std::string why_;
  const ScopedLogSink no_log_{[](const LogRecord&) {}};
};

TEST_F(SqliteStoreTest, WhatWasCommittedIsThereWhenItIsOpenedAgain) {
  int64_t revision = 0;
  {
    const auto store = Open();
    Put(*store, "a", "1");
    Put(*store, "b", "2");
    ASSERT_OK(store->Commit({.epoch = 7, .writes = {{"a", std::nullopt}}}).status());
    revision = store->revision();
  }
  const auto store = Open();
  EXPECT_EQ(store->revision(), revision);
  EXPECT_EQ(store->Get("b")->value, "2");
  EXPECT_THAT(store->Get("a"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(store->CommitsAfter(0, 10, absl::ZeroDuration()),
              IsOkAndHolds(testing::ElementsAre(StoredCommit{1, {{"a", "1"}}},
                                                StoredCommit{2, {{"b", "2"}}},
                                                StoredCommit{3, {{"a", std::nullopt}}})));
  EXPECT_THAT(store->Commit({.epoch = 6, .writes = {{"b", "3"}}}),
              StatusIs(absl::StatusCode::kAborted, testing::HasSubstr("epoch 6")));
}

TEST_F(SqliteStoreTest, WithoutThreadsWhoCommitsDoesTheWork) {
  SqliteStore::Options options = Options();
  options.has_threads = false;
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<SqliteStore> store, SqliteStore::Open(options));
    absl::StatusOr<int64_t> answer = absl::UnknownError("none yet");
    store->CommitThen({.writes = {{"a", "1"}}},
                      [&](absl::StatusOr<int64_t> revision) { answer = std::move(revision); });
    EXPECT_THAT(answer, IsOkAndHolds(1));
    EXPECT_EQ(store->Get("a")->value, "1");
    store->RunDue();
    EXPECT_THAT(store->Commit({.requirements = {{"a", 0}}}), StatusIs(absl::StatusCode::kAborted));
  }
  EXPECT_EQ(Open()->Get("a")->value, "1");
}

TEST_F(SqliteStoreTest, TheNextEpochIsBeyondAllBeforeEvenWhenTheClockGoesBack) {
  uint64_t first = 0;
  {
    const auto store = Open();
    first = store->next_epoch();
    EXPECT_EQ(first, EpochAt(clock_.Now()));
    ASSERT_OK(store->Commit({.epoch = first + 5}).status());
  }
  EXPECT_EQ(Open()->next_epoch(), first + 6);  // the clock stands
  clock_.Advance(absl::Hours(1));
  EXPECT_EQ(Open()->next_epoch(), first + 3'600'000'000);
}

TEST_F(SqliteStoreTest, TheFolderIsOfOneProcess) {
  const auto store = Open();
  EXPECT_EQ(WhyNotOpened(), StoreErrorKind::kLocked);
  EXPECT_THAT(why_, testing::HasSubstr(absl::StrCat("found process ", getpid())));
}

TEST_F(SqliteStoreTest, TheFolderIsItsOwnersAlone) {
  Open();
  struct stat found = {};
  ASSERT_EQ(stat(folder_.PathOf("state").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0700);
  ASSERT_EQ(chmod(folder_.PathOf("state").c_str(), 0770), 0);
  EXPECT_EQ(WhyNotOpened(), StoreErrorKind::kUnusable);
  EXPECT_THAT(why_, testing::HasSubstr("mode 770"));
}

TEST_F(SqliteStoreTest, AFileIsNoFolder) {
  std::filesystem::create_directories(folder_.PathOf("other"));
  std::filesystem::create_symlink(folder_.PathOf("nothing"), folder_.PathOf("state"));
  EXPECT_EQ(WhyNotOpened(), StoreErrorKind::kUnusable);
}

TEST_F(SqliteStoreTest, NoLinkOfOursIsFollowed) {
  for (const char* file : {"lock", "store.db", "watermark"}) {
    std::filesystem::remove_all(folder_.PathOf("state"));
    ASSERT_EQ(mkdir(folder_.PathOf("state").c_str(), 0700), 0);
    std::filesystem::create_symlink(folder_.PathOf("elsewhere"), PathOf(file));
    EXPECT_FALSE(SqliteStore::Open(Options()).ok()) << file;
    EXPECT_FALSE(std::filesystem::exists(folder_.PathOf("elsewhere"))) << file;
  }
}

TEST_F(SqliteStoreTest, AFolderBehindALinkIsFine) {
  std::filesystem::create_directory(folder_.PathOf("real"));
  ASSERT_EQ(chmod(folder_.PathOf("real").c_str(), 0700), 0);
  std::filesystem::create_symlink(folder_.PathOf("real"), folder_.PathOf("state"));
  EXPECT_OK(SqliteStore::Open(Options()).status());
}

TEST_F(SqliteStoreTest, WhatANewerReleaseWroteIsRefused) {
  Open();
  Change("PRAGMA user_version = 1000");
  EXPECT_EQ(WhyNotOpened(), StoreErrorKind::kTooNew);
  EXPECT_THAT(why_, testing::HasSubstr("found 1000"));
}

TEST_F(SqliteStoreTest, AnotherProgramsDatabaseIsRefused) {
  ASSERT_EQ(mkdir(folder_.PathOf("state").c_str(), 0700), 0);
  Change("CREATE TABLE t(x)");
  EXPECT_EQ(WhyNotOpened(), StoreErrorKind::kUnusable);
}

TEST_F(SqliteStoreTest, WhatIsNotOfOursInTheDatabaseIsRefused) {
  for (const char* sql :
       {"CREATE TABLE zoo(x)", "CREATE INDEX i ON versions(key)", "DELETE FROM meta",
        "UPDATE versions SET value = x'00'", "UPDATE versions SET revision = 1",
        "DELETE FROM versions WHERE id = 1", "UPDATE meta SET epoch = 1",
        "INSERT INTO versions SELECT id + 10, revision, key, value_checksum, "
        "checksum, value FROM versions"}) {
    std::filesystem::remove_all(folder_.PathOf("state"));
    {
      const auto store = Open();
      Put(*store, "a", "1");
      Put(*store, "a", "2");
    }
    Change(sql);
    EXPECT_EQ(WhyNotOpened(), StoreErrorKind::kDamaged) << sql;
  }
}

TEST_F(SqliteStoreTest, ARowInThePlaceOfAnotherIsRefusedThoughItsChecksumIsRight) {
  SqliteStore::Options options = Options();
  options.commits_kept = 1;
  {
    ASSERT_OK_AND_ASSIGN(const auto store, SqliteStore::Open(options));
    for (const char* key : {"a", "b", "c", "d"}) Put(*store, key, "1");
  }
  const VersionHeader forged = {
      .id = 1, .revision = 1, .key = "a", .value_bytes = 1, .value_checksum = ValueChecksum("2")};
  Change(absl::StrCat("UPDATE versions SET value = x'32', value_checksum = ", forged.value_checksum,
                      ", checksum = ", forged.Checksum(), " WHERE id = 1"));
  EXPECT_EQ(WhyNotOpened(), StoreErrorKind::kDamaged);
  EXPECT_THAT(why_, testing::HasSubstr("rows of sum"));
}

TEST_F(SqliteStoreTest, ADatabaseOrAMarkThatIsMissingIsRefused) {
  for (const char* file : {"store.db", "watermark"}) {
    std::filesystem::remove_all(folder_.PathOf("state"));
    Put(*Open(), "a", "1");
    std::filesystem::remove(PathOf(file));
    EXPECT_EQ(WhyNotOpened(), StoreErrorKind::kDamaged) << file;
  }
}

TEST_F(SqliteStoreTest, AWriteOfSomethingElseIsNoticedByTheNextCommit) {
  const auto store = Open();
  Put(*store, "a", "1");
  Change("UPDATE meta SET revision = 0");
  EXPECT_THAT(store->Commit({.writes = {{"a", "2"}}}),
              StatusIs(absl::StatusCode::kDataLoss, testing::HasSubstr("something else")));
}

TEST_F(SqliteStoreTest, ValuesOfALargeDatabaseAreCheckedAfterItIsOpened) {
  {
    const auto store = Open();
    Put(*store, "a", std::string(100'000, 'x'));
  }
  Change("UPDATE versions SET value = zeroblob(100000)");
  SqliteStore::Options options = Options();
  options.checked_at_open_bytes = 1000;
  ASSERT_OK_AND_ASSIGN(const auto store, SqliteStore::Open(options));
  EXPECT_THAT(store->Get("a"), StatusIs(absl::StatusCode::kDataLoss, testing::HasSubstr("\"a\"")));
  EXPECT_THAT(store->Verify(), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(SqliteStoreTest, BelowItsFloorItIsFullUntilThereIsRoomAgain) {
  const auto store = Open();
  Put(*store, "a", "1");
  free_bytes_ = 64 << 20;
  const absl::Status full = store->Commit({.writes = {{"a", "2"}}}).status();
  EXPECT_EQ(StoreErrorKindOf(full), StoreErrorKind::kFull);
  EXPECT_THAT(std::string(full.message()), testing::HasSubstr("STORE_FULL"));
  EXPECT_THAT(store->Commit({.writes = {{"a", std::nullopt}}}),
              StatusIs(absl::StatusCode::kResourceExhausted));  // the reserve is not released
  EXPECT_EQ(store->Get("a")->value, "1");
  EXPECT_TRUE(store->stats().is_full);
  free_bytes_ = int64_t{1} << 30;
  Put(*store, "a", "2");
  EXPECT_FALSE(store->stats().is_full);
}

TEST_F(SqliteStoreTest, TheReserveIsForDeletesWhichGiveRoomBack) {
  const auto store = Open();
  for (int i = 0; i < 20; ++i) Put(*store, absl::StrCat(i), std::string(200'000, 'x'));
  EXPECT_EQ(std::filesystem::file_size(PathOf("reserve")), 1 << 20);
  clock_.Advance(absl::Hours(1));
  store->RunDue();
  free_bytes_ = 8 << 20;
  ASSERT_OK(store->ReleaseReserve());
  EXPECT_FALSE(std::filesystem::exists(PathOf("reserve")));
  EXPECT_THAT(store->Commit({.writes = {{"a", "1"}}}),
              StatusIs(absl::StatusCode::kResourceExhausted));
  const auto before = std::filesystem::file_size(PathOf("store.db"));
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(store->Commit({.writes = {{absl::StrCat(i), std::nullopt}}}).status());
  }
  EXPECT_LT(std::filesystem::file_size(PathOf("store.db")), before / 10);
  free_bytes_ = int64_t{1} << 30;
  clock_.Advance(absl::Seconds(1));
  store->RunDue();
  EXPECT_TRUE(std::filesystem::exists(PathOf("reserve")));
  EXPECT_OK(store->Verify());
}

TEST_F(SqliteStoreTest, CommitsBeyondTheirBytesAreForgotten) {
  SqliteStore::Options options = Options();
  options.journal_bytes_max = 10'000;
  ASSERT_OK_AND_ASSIGN(const auto store, SqliteStore::Open(options));
  for (int i = 0; i < 300; ++i) Put(*store, "a", std::string(1000, 'x'));
  EXPECT_LT(store->stats().commits_kept, 12);
  EXPECT_GT(store->stats().kept_bytes, 8'000);
  EXPECT_LE(store->stats().kept_bytes, 10'000);
  EXPECT_THAT(store->CommitsAfter(0, 1, absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kOutOfRange));
  store->RunDue();
  EXPECT_LT(store->stats().database_bytes + store->stats().log_bytes, 6 << 20);
  EXPECT_OK(store->Verify());
}

TEST_F(SqliteStoreTest, TheLogIsMovedIntoTheDatabaseAsItGrows) {
  const auto store = Open();
  for (int i = 0; i < 2000; ++i) Put(*store, "a", std::string(1000, 'x'));
  store->RunDue();
  EXPECT_LT(store->stats().log_bytes, 6 << 20);
  EXPECT_GT(store->stats().database_bytes, 1 << 20);
}

TEST_F(SqliteStoreTest, TheLogIsEmptiedByTheHour) {
  const auto store = Open();
  Put(*store, "a", "1");
  EXPECT_GT(store->stats().log_bytes, 0);
  clock_.Advance(absl::Hours(1));
  store->RunDue();
  EXPECT_EQ(store->stats().log_bytes, 0);
  EXPECT_EQ(store->Get("a")->value, "1");
}

TEST_F(SqliteStoreTest, ABackupIsTheStoreAtOneMoment) {
  const auto store = Open();
  Put(*store, "a", "1");
  const std::string path = folder_.PathOf("backup.db");
  ASSERT_OK(store->Backup(path));
  EXPECT_THAT(store->Backup(path), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(store->stats().backed_up_at, clock_.Now());
  ASSERT_OK_AND_ASSIGN(const ScanResult scan, ScanFile(path, ""));
  EXPECT_EQ(scan.head.revision, 1);
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST_F(SqliteStoreTest, ARestoredStoreGoesOnBeyondAllThatWasGivenOut) {
  const std::string path = folder_.PathOf("backup.db");
  uint64_t epoch = 0;
  int64_t revision = 0;
  {
    const auto store = Open();
    Put(*store, "a", "1");
    ASSERT_OK(store->Backup(path));
    Put(*store, "a", "2");
    ASSERT_OK(store->Commit({.epoch = store->next_epoch()}).status());
    epoch = store->next_epoch();
    revision = store->revision();
  }
  EXPECT_EQ(StoreErrorKindOf(SqliteStore::Restore(path, Options())), StoreErrorKind::kUnusable);
  std::filesystem::rename(folder_.PathOf("state"), folder_.PathOf("former"));
  clock_.Advance(absl::Seconds(1));
  ASSERT_OK(SqliteStore::Restore(path, Options()));
  ASSERT_OK(SqliteStore::VerifyFolder(Options()));
  const auto store = Open();
  EXPECT_EQ(store->Get("a")->value, "1");
  EXPECT_GT(store->revision(), revision);
  EXPECT_GT(store->next_epoch(), epoch);
  EXPECT_THAT(store->CommitsAfter(revision, 1, absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_OK(store->Commit({.epoch = store->next_epoch(), .writes = {{"a", "3"}}}).status());
}

TEST_F(SqliteStoreTest, ADamagedBackupIsNotRestored) {
  const std::string path = folder_.PathOf("backup.db");
  {
    const auto store = Open();
    Put(*store, "a", "1");
    ASSERT_OK(store->Backup(path));
  }
  std::filesystem::remove_all(folder_.PathOf("state"));
  {
    ASSERT_OK_AND_ASSIGN(const auto backup, SqliteConnection::Open({.path = path}));
    ASSERT_OK(backup->Execute("UPDATE versions SET value = x'00'"));
  }
  const absl::Status refused = SqliteStore::Restore(path, Options());
  EXPECT_EQ(StoreErrorKindOf(refused), StoreErrorKind::kDamaged) << refused;
  EXPECT_FALSE(std::filesystem::exists(PathOf("store.db")));
}

TEST_F(SqliteStoreTest, AFolderIsVerifiedWithoutItsProcess) {
  EXPECT_EQ(StoreErrorKindOf(SqliteStore::VerifyFolder(Options())), StoreErrorKind::kUnusable);
  Put(*Open(), "a", "1");
  EXPECT_OK(SqliteStore::VerifyFolder(Options()));
  Change("UPDATE versions SET value = x'00'");
  EXPECT_EQ(StoreErrorKindOf(SqliteStore::VerifyFolder(Options())), StoreErrorKind::kDamaged);
}

TEST_F(SqliteStoreTest, AMigrationIsAllOrNothingAfterABackup) {
  std::vector<SchemaMigration> migrations(SchemaMigrations().begin(), SchemaMigrations().end());
  Put(*Open(), "a", "1");
  const auto migrate = [&](int64_t* backed_up) {
    const auto connection = SqliteConnection::Open({.path = PathOf("store.db")});
    CHECK_OK(connection);
    const absl::Status status = MigrateSchema(**connection, migrations, [&](int64_t version) {
      *backed_up = version;
      return absl::OkStatus();
    });
    EXPECT_EQ(*SchemaVersion(**connection), status.ok() ? 3 : 2) << status;
    return status;
  };
  migrations.push_back({"CREATE TABLE more(x)"});
  migrations.push_back({"CREATE TABLE yet_more(x); CREATE TABLE more(x)"});
  int64_t backed_up = 0;
  EXPECT_FALSE(migrate(&backed_up).ok());
  EXPECT_EQ(backed_up, 1);
  migrations.back().sql = "CREATE TABLE yet_more(x)";
  EXPECT_OK(migrate(&backed_up));
  EXPECT_EQ(backed_up, 2);
}

}  // namespace
}  // namespace crossmesh
