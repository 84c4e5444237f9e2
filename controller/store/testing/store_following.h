// What a store promises to those who follow it: part of store_conformance.h.

#pragma once

#include "common/base/thread.h"
#include "common/testing/status_matchers.h"
#include "controller/store/metadata_store.h"
#include "controller/store/testing/store_fixture.h"

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {

TEST_P(StoreConformance, OneWhoFollowsHearsOfWholeCommitsInTheirOrder) {
  const int64_t start = store_->revision();
  ASSERT_OK_AND_ASSIGN(const int64_t first,
                       store_->Commit({.writes = {{"b", "1"}, {"a", "2"}, {"c", std::nullopt}}}));
  EXPECT_THAT(store_->Commit({.requirements = {{"a", 0}}, .writes = {{"a", "3"}}}),
              StatusIs(absl::StatusCode::kAborted));  // of which nothing is heard
  ASSERT_OK_AND_ASSIGN(const int64_t second, store_->Commit({.writes = {{"a", std::nullopt}}}));
  EXPECT_THAT(store_->CommitsAfter(start, 10, absl::ZeroDuration()),
              IsOkAndHolds(testing::ElementsAre(
                  StoredCommit{first, {{"b", "1"}, {"a", "2"}, {"c", std::nullopt}}},
                  StoredCommit{second, {{"a", std::nullopt}}})));
  EXPECT_THAT(RevisionsAfter(first), testing::ElementsAre(second));
  EXPECT_THAT(RevisionsAfter(second), testing::IsEmpty());
  ASSERT_OK_AND_ASSIGN(const std::vector<StoredCommit> page,
                       store_->CommitsAfter(start, 1, absl::ZeroDuration()));
  ASSERT_EQ(page.size(), 1);
  EXPECT_EQ(page[0].revision, first);
}

TEST_P(StoreConformance, OneWhoFollowsWaitsForTheNextCommit) {
  const int64_t start = store_->revision();
  Thread writer("writer", [this] { EXPECT_OK(store_->Commit(Put("k", "v")).status()); });
  ASSERT_OK_AND_ASSIGN(const std::vector<StoredCommit> heard,
                       store_->CommitsAfter(start, 10, absl::Minutes(1)));
  writer.Join();
  ASSERT_EQ(heard.size(), 1);
  EXPECT_EQ(heard[0].writes, (std::vector<StoreTransaction::Write>{{"k", "v"}}));
}

TEST_P(StoreConformance, OneWhoFollowsWhileOthersWriteMissesNothingAndHearsNothingTwice) {
  constexpr int kThreads = 3;
  constexpr int kCommits = 20;  // fewer than are kept, by all
  int64_t at = store_->revision();
  std::vector<Thread> writers;
  for (int i = 0; i < kThreads; ++i) {
    writers.emplace_back("writer", [this, i] {
      for (int k = 0; k < kCommits; ++k) {
        EXPECT_OK(store_->Commit(Put(absl::StrCat(i), absl::StrCat(k))).status());
      }
    });
  }
  std::vector<int> next(kThreads, 0);
  for (int heard = 0; heard < kThreads * kCommits;) {
    ASSERT_OK_AND_ASSIGN(const std::vector<StoredCommit> commits,
                         store_->CommitsAfter(at, 7, absl::Minutes(1)));
    for (const StoredCommit& commit : commits) {
      ASSERT_GT(commit.revision, at);
      at = commit.revision;
      int& expected = next[std::stoi(commit.writes.at(0).key)];
      ASSERT_EQ(commit.writes[0].value, absl::StrCat(expected++));
      ++heard;
    }
  }
  for (Thread& writer : writers) writer.Join();
  EXPECT_EQ(at, store_->revision());
}

TEST_P(StoreConformance, OneWhoComesTooLateIsToldFromWhereAllIsKept) {
  const int64_t start = store_->revision();
  for (int64_t i = 0; i < 3 * kCommitsKept; ++i) {
    ASSERT_OK(store_->Commit(Put("k", absl::StrCat(i))).status());
  }
  EXPECT_THAT(store_->CommitsAfter(start, 10, absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kOutOfRange, testing::HasSubstr("expected one of at")));
  const int64_t kept = store_->revision() - kCommitsKept;
  EXPECT_EQ(std::ssize(RevisionsAfter(kept)), kCommitsKept);
}

}  // namespace crossmesh
