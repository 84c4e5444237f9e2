#include "planner/network/message_channels.h"

#include "common/mesh/gpu_host.h"
#include "common/plan/testing/tables.h"

#include <string>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr int64_t kKiB = int64_t{1} << 10;
constexpr int64_t kMebibyte = int64_t{1} << 20;

// Of all devices of this tensor.
MessageChannels ChannelsOf(const std::string& tensor, const std::string& preset = "h100x8") {
  const TensorTable table = TableOf({TensorOf(tensor)});
  return MessageChannels(*GpuNetworkOf(table, *GpuHosts(preset, table.hosts())));
}

const std::string kTwoGpus = "[8]: x=1 on a.0 [-] -> y=1 on a.1 [-]";
const std::string kOneHost = "[8]: x=4 on a.0-3 [x] -> y=4 on a.4-7 [y]";
const std::string kTwoHosts = "[8]: x=8 on a.0-7 [x] -> y=8 on b.0-7 [y]";

TEST(MessageChannelsTest, InsideAHostTheyArePartedAmongRanks) {
  EXPECT_EQ(ChannelsOf(kTwoGpus).Of(8 * kMebibyte), 32);
  EXPECT_EQ(ChannelsOf(kOneHost).Of(8 * kMebibyte), 8);
  EXPECT_EQ(ChannelsOf("[8]: x=4 on a.0-3 [x] -> y=1 on a.4 [-]").Of(8 * kMebibyte), 8)
      << "five ranks count as eight";
  EXPECT_EQ(ChannelsOf(kOneHost).by_links(), 64);
}

TEST(MessageChannelsTest, AShortMessageHasFewAndAVeryLongOneMore) {
  const MessageChannels channels = ChannelsOf(kOneHost);
  EXPECT_EQ(channels.Of(0), 1);
  EXPECT_EQ(channels.Of(32 * kKiB), 1);
  EXPECT_EQ(channels.Of(33 * kKiB), 2);
  EXPECT_EQ(channels.Of(64 * kMebibyte), 8);
  EXPECT_EQ(channels.Of(64 * kMebibyte + 1), 16);
  EXPECT_EQ(channels.Of(int64_t{1} << 40), 64);
}

TEST(MessageChannelsTest, WithoutNvlinkAPeerHasTwo) {
  EXPECT_EQ(ChannelsOf(kTwoGpus, "l40s-pcie").Of(int64_t{1} << 40), 2);
}

TEST(MessageChannelsTest, BetweenHostsAPeerHasAsManyAsItsNicNeeds) {
  EXPECT_EQ(ChannelsOf(kTwoHosts).Of(kMebibyte), 4) << "50 GB/s by 14 GB/s";
  EXPECT_EQ(ChannelsOf(kTwoHosts, "a100x8").Of(kMebibyte), 2);
  EXPECT_EQ(ChannelsOf(kTwoHosts).Of(64 * kKiB), 1);
  EXPECT_EQ(ChannelsOf(kTwoHosts).Of(128 * kKiB), 2);
}

TEST(MessageChannelsTest, BetweenHostsPeersOfOneHostHaveTheSame) {
  EXPECT_EQ(ChannelsOf(kTwoHosts).by_links(), 4);
}

TEST(MessageChannelsTest, ManyRanksHaveFewerEach) {
  const std::string many =
      "[256]: x=256 on h0.0-7,h1.0-7,h2.0-7,h3.0-7,h4.0-7,h5.0-7,h6.0-7,h7.0-7,"
      "i0.0-7,i1.0-7,i2.0-7,i3.0-7,i4.0-7,i5.0-7,i6.0-7,i7.0-7,"
      "j0.0-7,j1.0-7,j2.0-7,j3.0-7,j4.0-7,j5.0-7,j6.0-7,j7.0-7,"
      "k0.0-7,k1.0-7,k2.0-7,k3.0-7,k4.0-7,k5.0-7,k6.0-7,k7.0-7 [x] -> "
      "y=1 on h0.0 [-]";
  EXPECT_EQ(ChannelsOf(many).Of(64 * kMebibyte), 2) << "256 ranks";
}

}  // namespace
}  // namespace crossmesh
