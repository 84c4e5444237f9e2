#include "controller/store/etcd/records/etcd_keys.h"

#include "common/testing/status_matchers.h"

#include <cstdint>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(EtcdKeys, AllLieBelowTheCluster) {
  const EtcdKeys keys("prod");
  EXPECT_EQ(keys.Object("mesh/a"), "/crossmesh/prod/object/mesh/a");
  EXPECT_EQ(keys.Chunk("f00", 12), "/crossmesh/prod/chunk/f00/0000000012");
  EXPECT_EQ(keys.leader(), "/crossmesh/prod/leader");
  EXPECT_EQ(EtcdPrefixEnd(keys.root()), "/crossmesh/prod0");
}

TEST(EtcdKeys, ChunksOfAnObjectSortByTheirIndex) {
  const EtcdKeys keys("prod");
  EXPECT_LT(keys.Chunk("f00", 9), keys.Chunk("f00", 10));
  EXPECT_LT(keys.Chunk("f00", 10), EtcdPrefixEnd(keys.ChunksOf("f00")));
}

TEST(EtcdKeys, ANameOfAClusterStaysInItsFolder) {
  EXPECT_OK(EtcdKeys::Check("prod-1.eu_west"));
  for (const std::string& name : {std::string(), std::string("a/b"), std::string(64, 'a')}) {
    EXPECT_THAT(EtcdKeys::Check(name),
                StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("1 to 63")));
  }
}

TEST(EtcdKeys, EpochsSortAsTextAsTheyDoAsNumbers) {
  uint64_t last = 0;
  for (const uint64_t epoch :
       {uint64_t{1}, uint64_t{9}, uint64_t{10}, std::numeric_limits<uint64_t>::max()}) {
    EXPECT_LT(EpochText(last), EpochText(epoch));
    EXPECT_EQ(ParseEpochText(EpochText(epoch)), epoch);
    last = epoch;
  }
  for (const char* text : {"", "1", "0000000000000000000x", "99999999999999999999"}) {
    EXPECT_EQ(ParseEpochText(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace crossmesh
