#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "controller/store/sqlite/sqlite_store.h"

#include <array>
#include <csignal>
#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace crossmesh {
namespace {

// In a process of its own, to be killed: says what was acknowledged.
[[noreturn]] void CommitUntilKilled(const SqliteStore::Options& options, int out) {
  const auto store = SqliteStore::Open(options);
  CHECK_OK(store);
  for (int64_t i = (*store)->revision();; ++i) {
    const int64_t revision = *(*store)->Commit({.writes = {{"k", absl::StrCat(i)}}});
    CHECK_EQ(write(out, &revision, sizeof(revision)), sizeof(revision));
  }
}

TEST(StoreKillTest, NothingAcknowledgedIsLostWhenTheProcessIsKilled) {
  const TemporaryFolder folder;
  const RealClock clock;
  const ScopedLogSink no_log([](const LogRecord&) {});
  const SqliteStore::Options options = {
      .folder = folder.PathOf("state"), .clock = clock, .reserve_bytes = 0};
  std::mt19937_64 random(FromEnvironment("CROSSMESH_TEST_SEED", 1));
  for (int64_t round = 0; round < RandomCases(10); ++round) {
    std::array<int, 2> pipe_ends = {};
    ASSERT_EQ(pipe(pipe_ends.data()), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) CommitUntilKilled(options, pipe_ends[1]);
    close(pipe_ends[1]);
    int64_t acknowledged = 0;
    for (uint64_t left = 1 + random() % 100; left > 0; --left) {
      ASSERT_EQ(read(pipe_ends[0], &acknowledged, sizeof(acknowledged)), sizeof(acknowledged));
    }
    ASSERT_EQ(kill(child, SIGKILL), 0);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    while (read(pipe_ends[0], &acknowledged, sizeof(acknowledged)) > 0) {
    }
    close(pipe_ends[0]);
    ASSERT_OK_AND_ASSIGN(const auto store, SqliteStore::Open(options));
    EXPECT_GE(store->revision(), acknowledged);
    EXPECT_LE(store->revision(), acknowledged + 1);
    EXPECT_EQ(store->Get("k")->value, absl::StrCat(store->revision() - 1));
  }
}

}  // namespace
}  // namespace crossmesh
