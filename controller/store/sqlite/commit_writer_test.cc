#include "controller/store/sqlite/commit_writer.h"

#include "common/base/check.h"
#include "common/base/fake_clock.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "controller/store/sqlite/store_opening.h"
#include "controller/store/sqlite/testing/simulated_disk.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

class CommitWriterTest : public testing::Test {
 protected:
  CommitWriterTest()
      : folder_(*StateFolder::Claim(temporary_.PathOf("state"), StateFolder::Missing::kIsMade)),
        database_(*OpenDatabase(folder_,
                                {.folder = folder_.path(), .clock = clock_, .vfs = disk_.vfs()})) {
    index_.Replace(database_.scan.contents);
    auto writer = CommitWriter::Create(
        *database_.connection, index_, database_.scan,
        {.commits_kept = 4, .journal_bytes_max = 1 << 20, .erased_min = 2, .erased_max = 3});
    CHECK_OK(writer);
    writer_ = *std::move(writer);
  }

  void Commit(const std::string& key, std::optional<std::string> value) {
    const std::vector<StoreTransaction> transactions = {{.writes = {{key, std::move(value)}}}};
    ASSERT_OK(writer_->Commit(transactions).status());
  }
  bool HasRow(int64_t id) {
    return database_.connection->ReadInt(absl::StrCat("SELECT 1 FROM versions WHERE id = ", id))
        .ok();
  }

  const TemporaryFolder temporary_;
  const SimulatedDisk disk_{/*seed=*/1};
  const FakeClock clock_;
  const StateFolder folder_;
  OpenedDatabase database_;
  VersionIndex index_;
  std::unique_ptr<CommitWriter> writer_;
};

TEST_F(CommitWriterTest, ARowStaysAsLongAsItMayBeRead) {
  Commit("a", "1");
  std::optional<VersionIndex::Reading> reading(index_.BeginReading());
  const int64_t id = index_.Find("a")->id;
  for (int i = 0; i < 20; ++i) Commit("a", absl::StrCat(i));
  EXPECT_TRUE(HasRow(id));
  reading.reset();
  for (int i = 0; i < 20; ++i) Commit("a", absl::StrCat(i));
  EXPECT_FALSE(HasRow(id));
}

TEST_F(CommitWriterTest, ATransactionSeesThoseThatAreCommittedWithIt) {
  const std::vector<StoreTransaction> transactions = {
      {.requirements = {{"a", 0}}, .writes = {{"a", "1"}}},
      {.requirements = {{"a", 0}}, .writes = {{"a", "2"}}},
      {.requirements = {{"a", 1}}, .writes = {{"a", "3"}}}};
  ASSERT_OK_AND_ASSIGN(const auto results, writer_->Commit(transactions));
  EXPECT_THAT(results[0], IsOkAndHolds(1));
  EXPECT_THAT(results[1], StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(results[2], IsOkAndHolds(2));
}

// After every commit, whatever has been erased and is still read.
TEST_F(CommitWriterTest, AScanFindsWhatTheIndexHas) {
  const uint64_t seed = FromEnvironment("CROSSMESH_TEST_SEED", 1);
  SCOPED_TRACE(absl::StrCat("CROSSMESH_TEST_SEED=", seed));
  std::mt19937_64 random(seed);
  std::optional<VersionIndex::Reading> reading;
  for (int64_t i = 0; i < RandomCases(600); ++i) {
    if (random() % 8 == 0) reading.reset();
    if (random() % 8 == 0) reading.emplace(index_.BeginReading());
    const std::string key = absl::StrCat(random() % 6);
    const bool is_delete = random() % 3 == 0;
    Commit(key, is_delete ? std::nullopt : std::optional(absl::StrCat(i)));
    if (random() % 50 == 0) ASSERT_OK(writer_->ForgetCommits());
    ASSERT_OK_AND_ASSIGN(const ScanResult scan, ScanStore(*database_.connection, {}));
    ASSERT_EQ(scan.head, writer_->head());
    ASSERT_EQ(std::ssize(scan.contents.rows), index_.size()) << "commit " << i;
    for (const auto& [found, row] : scan.contents.rows) {
      ASSERT_EQ(index_.Find(found)->id, row.id) << "object " << found << ", commit " << i;
    }
    ASSERT_LT(scan.head.row_count, 200);
  }
}

}  // namespace
}  // namespace crossmesh
