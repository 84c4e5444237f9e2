#pragma once

#include "common/testing/status_matchers.h"
#include "controller/store/metadata_store.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/time/time.h>
#include <gtest/gtest.h>

namespace crossmesh {

// What every MetadataStore promises. Instantiate with a factory of empty stores:
//
//   INSTANTIATE_TEST_SUITE_P(Memory, StoreConformance, testing::Values(StoreFactory([](int64_t
//   commits_kept) { ... })));
//
// The argument is how many commits the store keeps for those who follow it.
using StoreFactory = std::function<std::unique_ptr<MetadataStore>(int64_t commits_kept)>;

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

  // The revisions of the commits that one who follows from `revision` hears of.
  std::vector<int64_t> RevisionsAfter(int64_t revision) const {
    const absl::StatusOr<std::vector<StoredCommit>> commits =
        store_->CommitsAfter(revision, 1000, absl::ZeroDuration());
    EXPECT_OK(commits.status());
    std::vector<int64_t> revisions;
    for (const StoredCommit& commit : *commits) revisions.push_back(commit.revision);
    return revisions;
  }

  static constexpr int64_t kCommitsKept = 100;

  std::unique_ptr<MetadataStore> store_ = GetParam()(kCommitsKept);
};

}  // namespace crossmesh
