#pragma once

#include "common/base/thread.h"
#include "common/testing/status_matchers.h"
#include "controller/store/metadata_store.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {

// What every MetadataStore promises. Instantiate with a factory of empty stores:
//
//   INSTANTIATE_TEST_SUITE_P(Memory, StoreConformance, testing::Values(StoreFactory([] { ... })));
using StoreFactory = std::function<std::unique_ptr<MetadataStore>()>;

class StoreConformance : public testing::TestWithParam<StoreFactory> {
 protected:
  static StoreTransaction Put(std::string key, std::string value) {
    return StoreTransaction{.writes = {{std::move(key), std::move(value)}}};
  }
  static std::vector<std::string> Keys(const std::vector<StoredObject>& objects) {
    std::vector<std::string> keys;
    for (const StoredObject& object : objects) keys.push_back(object.key);
    return keys;
  }

  std::unique_ptr<MetadataStore> store_ = GetParam()();
};

TEST_P(StoreConformance, AnObjectIsReadAsItWasWrittenWithTheRevisionOfItsCommit) {
  ASSERT_OK_AND_ASSIGN(const int64_t revision, store_->Commit(Put("mesh/a", "x")));
  ASSERT_OK_AND_ASSIGN(const StoredObject object, store_->Get("mesh/a"));
  EXPECT_EQ(object.value, "x");
  EXPECT_EQ(object.revision, revision);
  EXPECT_THAT(store_->RevisionOf("mesh/a"), IsOkAndHolds(revision));
  EXPECT_THAT(store_->RevisionOf("mesh/b"), IsOkAndHolds(0));
}

TEST_P(StoreConformance, RevisionsGrowWithEveryCommit) {
  int64_t last = 0;
  for (int i = 0; i < 10; ++i) {
    ASSERT_OK_AND_ASSIGN(const int64_t revision, store_->Commit(Put("k", absl::StrCat(i))));
    EXPECT_GT(revision, last);
    last = revision;
  }
}

TEST_P(StoreConformance, AMissingObjectIsNotFoundAndNamed) {
  EXPECT_THAT(store_->Get("mesh/a"),
              StatusIs(absl::StatusCode::kNotFound, testing::HasSubstr("mesh/a")));
}

TEST_P(StoreConformance, ADeletedObjectIsGone) {
  ASSERT_OK(store_->Commit(Put("k", "v")).status());
  ASSERT_OK(store_->Commit({.writes = {{"k", std::nullopt}}}).status());
  EXPECT_THAT(store_->Get("k"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_P(StoreConformance, ARequirementThatDoesNotHoldAbortsTheWholeTransaction) {
  ASSERT_OK_AND_ASSIGN(const int64_t revision, store_->Commit(Put("a", "1")));
  const StoreTransaction stale{.requirements = {{"a", revision + 1}},
                               .writes = {{"a", "2"}, {"b", "2"}}};
  EXPECT_THAT(store_->Commit(stale),
              StatusIs(absl::StatusCode::kAborted, testing::HasSubstr("object a")));
  EXPECT_EQ(store_->Get("a")->value, "1");
  EXPECT_THAT(store_->Get("b"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_P(StoreConformance, ARequirementOfRevisionZeroMeansThatTheObjectMustNotExist) {
  const StoreTransaction create{.requirements = {{"a", 0}}, .writes = {{"a", "1"}}};
  EXPECT_OK(store_->Commit(create).status());
  EXPECT_THAT(store_->Commit(create), StatusIs(absl::StatusCode::kAborted));
}

TEST_P(StoreConformance, AnEpochLowerThanOneSeenIsFenced) {
  EXPECT_OK(store_->Commit({.epoch = 5, .writes = {{"a", "1"}}}).status());
  EXPECT_THAT(store_->Commit({.epoch = 4, .writes = {{"a", "2"}}}),
              StatusIs(absl::StatusCode::kAborted, testing::HasSubstr("epoch 4")));
  EXPECT_EQ(store_->Get("a")->value, "1");
  EXPECT_OK(store_->Commit({.epoch = 5, .writes = {{"a", "3"}}}).status());
}

TEST_P(StoreConformance, ListsByPrefixInOrderAndPageByPage) {
  for (const char* key : {"mesh/b", "mesh/a", "mesh/c", "meshes", "manifest/a"}) {
    ASSERT_OK(store_->Commit(Put(key, "v")).status());
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<StoredObject> first, store_->List("mesh/", "", 2));
  EXPECT_THAT(Keys(first), testing::ElementsAre("mesh/a", "mesh/b"));
  ASSERT_OK_AND_ASSIGN(const std::vector<StoredObject> next, store_->List("mesh/", "mesh/b", 2));
  EXPECT_THAT(Keys(next), testing::ElementsAre("mesh/c"));
  ASSERT_OK_AND_ASSIGN(const std::vector<StoredObject> none, store_->List("mesh/", "mesh/c", 2));
  EXPECT_TRUE(none.empty());
}

TEST_P(StoreConformance, NoUpdateIsLostBetweenThreadsThatCompareAndSet) {
  constexpr int kThreads = 4;
  constexpr int kIncrements = 100;
  ASSERT_OK(store_->Commit(Put("counter", "0")).status());
  const auto increment = [this] {
    for (int done = 0; done < kIncrements;) {
      const StoredObject object = *store_->Get("counter");
      const StoreTransaction next{
          .requirements = {{"counter", object.revision}},
          .writes = {{"counter", absl::StrCat(std::stoi(object.value) + 1)}}};
      if (store_->Commit(next).ok()) ++done;
    }
  };
  std::vector<Thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back("increment", increment);
  for (Thread& thread : threads) thread.Join();
  EXPECT_EQ(store_->Get("counter")->value, absl::StrCat(kThreads * kIncrements));
}

}  // namespace crossmesh
