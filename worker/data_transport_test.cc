#include "worker/data_transport.h"

#include "common/base/thread.h"
#include "worker/transport/sibling_reads.h"
#include "worker/transport/testing/system_filter.h"

#include <cerrno>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/seccomp.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

TEST(DataTransportTest, UcxUsesSharedMemoryOnlyWhereTheSystemAllowsIt) {
  const DataTransportOptions wanted{
      .kind = DataTransport::kUcx, .interfaces = {"eth0", "eth1"}, .shared_memory = true};
  EXPECT_EQ(AllowedDataTransport("w", wanted).shared_memory, ProbeSiblingReads().error == 0);
  DataTransportOptions refused;
  Thread("filtered", [&] {
    FilterSiblingReads(SECCOMP_RET_ERRNO | EPERM);
    refused = AllowedDataTransport("w", wanted);
  }).Join();
  EXPECT_FALSE(refused.shared_memory);
  EXPECT_EQ(refused.kind, wanted.kind);
  EXPECT_THAT(refused.interfaces, ElementsAre("eth0", "eth1"));
}

TEST(DataTransportTest, SocketsFindOutForThemselves) {
  DataTransportOptions allowed;
  Thread("filtered", [&] {
    FilterSiblingReads(SECCOMP_RET_ERRNO | EPERM);
    allowed = AllowedDataTransport("w", {.kind = DataTransport::kSocket});
  }).Join();
  EXPECT_TRUE(allowed.shared_memory);
}

TEST(DataTransportTest, SharedMemoryThatIsNotWantedStaysOff) {
  EXPECT_FALSE(AllowedDataTransport("w", {.shared_memory = false}).shared_memory);
}

}  // namespace
}  // namespace crossmesh
