#include "worker/gpu/compiler/checksum_comparison.h"

#include "common/base/check.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/leaf_checksum.h"
#include "worker/gpu/compiler/testing/compiled_parts.h"
#include "worker/gpu/compiler/testing/small_plans.h"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kLeaf = Plan::kLeafBytes;

// b.0 receives a relay of two chunks of a leaf and a half, so with two leaves each, and then one of
// a single leaf.
class ChecksumComparisonTest : public testing::Test {
 protected:
  static std::shared_ptr<const CompiledPart> CompiledPartOfReceiver(bool checksums) {
    Plan::Spec spec = ThroughTwoHops(4 * kLeaf);
    spec.chunk_bytes = 2 * kLeaf;
    spec.periods = 0;
    spec.relays[0].end = 3 * kLeaf;
    spec.relays.push_back({.begin = 3 * kLeaf, .end = 4 * kLeaf, .first_hop = 2, .hop_count = 2});
    spec.hops.push_back({.from = 0, .to = 1, .place = 1, .period = 0});
    spec.hops.push_back({.from = 1, .to = 2, .place = 1, .period = 1});
    auto compiled_parts =
        CompiledPartsOf(Made(std::move(spec)), {.staging_bytes = 1 << 20, .checksums = checksums});
    CHECK_OK(compiled_parts);
    return (*compiled_parts)[1];
  }

  const std::shared_ptr<const CompiledPart> compiled_ = CompiledPartOfReceiver(true);
  const std::vector<uint64_t> of_root_ = {10, 11, 12, 13, 14};
};

TEST_F(ChecksumComparisonTest, EqualHashesGiveTheDigestOfTheRelaysChecksums) {
  const DeviceReport report =
      CompareChecksums(*compiled_, {.of_root = of_root_, .in_place = of_root_});
  EXPECT_EQ(report.device, 1);
  EXPECT_OK(report.status);
  EXPECT_EQ(report.bytes, 4 * kLeaf);
  const std::vector<uint64_t> checksums = {ChecksumOfLeaves(std::span(of_root_).first(4)),
                                           ChecksumOfLeaves(std::span(of_root_).last(1))};
  EXPECT_EQ(report.digest, Digest::Of(std::as_bytes(std::span(checksums))));
}

TEST_F(ChecksumComparisonTest, ALeafThatDiffersIsNamedByItsBytes) {
  const std::vector<int64_t> edges = {0, kLeaf, 3 * kLeaf / 2, 5 * kLeaf / 2, 3 * kLeaf, 4 * kLeaf};
  for (size_t leaf = 0; leaf < of_root_.size(); ++leaf) {
    std::vector<uint64_t> in_place = of_root_;
    in_place[leaf] = 0xBAD;
    const DeviceReport report =
        CompareChecksums(*compiled_, {.of_root = of_root_, .in_place = in_place});
    const bool in_first = leaf < 4;
    EXPECT_THAT(
        report.status,
        StatusIs(absl::StatusCode::kDataLoss,
                 AllOf(HasSubstr(absl::StrCat("relay ", in_first ? 0 : 1, " at b.0, bytes [",
                                              edges[leaf], ", ", edges[leaf + 1], ")")),
                       HasSubstr("found 0000000000000bad in place"))));
    EXPECT_EQ(report.bytes, in_first ? kLeaf : 3 * kLeaf);
    EXPECT_EQ(report.digest, Digest());
  }
}

TEST_F(ChecksumComparisonTest, WithoutChecksumsThereIsNothingToCompare) {
  const DeviceReport report = CompareChecksums(*CompiledPartOfReceiver(false), {});
  EXPECT_OK(report.status);
  EXPECT_EQ(report.bytes, 4 * kLeaf);
  EXPECT_EQ(report.digest, Digest());
}

}  // namespace
}  // namespace crossmesh
