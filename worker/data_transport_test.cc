#include "worker/data_transport.h"

#include "common/base/thread.h"
#include "common/testing/status_matchers.h"
#include "worker/transport/sibling_reads.h"
#include "worker/transport/testing/system_filter.h"
#include "worker/transport/testing/transport_node.h"

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/seccomp.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

class DataTransportKindTest : public testing::TestWithParam<DataTransport> {
 protected:
  static absl::StatusOr<std::unique_ptr<TransportNode>> MakeNode(
      const std::vector<std::string>& interfaces) {
    return TransportNode::Create(
        [&](TransportSink& sink) {
          return MakeDataTransport(
              {.kind = GetParam(), .interfaces = interfaces, .shared_memory = false}, sink);
        },
        TransportNode::Arrival::kReceive);
  }
};

INSTANTIATE_TEST_SUITE_P(All, DataTransportKindTest,
                         testing::Values(DataTransport::kSocket, DataTransport::kUcx),
                         [](const auto& test) {
                           return test.param == DataTransport::kUcx ? "Ucx" : "Socket";
                         });

TEST_P(DataTransportKindTest, WorkersWithOneAndWithSeveralInterfacesReachEachOther) {
  ASSERT_OK_AND_ASSIGN(const auto one, MakeNode({"lo"}));
  ASSERT_OK_AND_ASSIGN(const auto two, MakeNode({"lo", "lo"}));
  ASSERT_OK_AND_ASSIGN(const PeerId to_two, one->Connect(two->address()));
  ASSERT_OK_AND_ASSIGN(const PeerId to_one, two->Connect(one->address()));
  EXPECT_EQ(one->Lanes(to_two), 2);
  EXPECT_EQ(two->Lanes(to_one), 2);
  one->SendMany(to_two, 8, 1 << 20);
  two->SendMany(to_one, 8, 1 << 20);
  for (TransportNode* node : {one.get(), two.get()}) {
    EXPECT_TRUE(node->WaitUntil([](const auto& record) { return record.received.size() == 8; }));
    for (const auto& received : node->record().received) EXPECT_OK(received.status);
  }
}

TEST_P(DataTransportKindTest, AnUnknownInterfaceAmongSeveralIsNamed) {
  EXPECT_THAT(MakeNode({"lo", "nosuchdevice0"}),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("nosuchdevice0")));
}

TEST_P(DataTransportKindTest, WithoutInterfacesIsRefused) {
  EXPECT_THAT(MakeNode({}), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace crossmesh
