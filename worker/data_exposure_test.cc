#include "worker/data_exposure.h"

#include "common/base/log.h"
#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "worker/data_transport.h"
#include "worker/transport/socket/socket_address.h"

#include <string>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// IPv4 as it is mapped, "::ffff:10.1.2.3".
IpEndpoint At(const char* ip) {
  IpEndpoint endpoint;
  EXPECT_EQ(inet_pton(AF_INET6, ip, endpoint.ip.data()), 1) << ip;
  return endpoint;
}

absl::StatusOr<std::string> Find(const char* ip, const std::vector<std::string>& networks,
                                 bool insecure = false) {
  return FindPermission("eth0", At(ip), {.insecure = insecure, .trusted_networks = networks});
}

TEST(DataExposureTest, LoopbackNeedsNoPermission) {
  for (const char* ip : {"::ffff:127.0.0.1", "::ffff:127.9.0.1", "::1"}) {
    EXPECT_THAT(Find(ip, {}), IsOkAndHolds("")) << ip;
    EXPECT_THAT(Find(ip, {"0.0.0.0/0"}, true), IsOkAndHolds("")) << ip;
  }
}

TEST(DataExposureTest, OtherAddressesNeedOne) {
  for (const char* ip : {"::ffff:192.0.2.2", "::ffff:128.0.0.1", "::2", "fd00::1"}) {
    EXPECT_THAT(Find(ip, {}), StatusIs(absl::StatusCode::kInvalidArgument,
                                       AllOf(HasSubstr("\"eth0\""), HasSubstr("--insecure"),
                                             HasSubstr("no network is trusted"))));
    EXPECT_THAT(Find(ip, {}, true), IsOkAndHolds("--insecure")) << ip;
  }
  EXPECT_THAT(Find("::ffff:192.0.2.2", {"10.0.0.0/8", "fd00::/16"}),
              IsRefused("found 192.0.2.2:0, and trusted are 10.0.0.0/8, fd00::/16"));
}

TEST(DataExposureTest, ATrustedNetworkIsOne) {
  EXPECT_THAT(Find("::ffff:10.1.2.3", {"192.0.2.0/24", "10.1.0.0/16"}),
              IsOkAndHolds("10.1.0.0/16"));
  EXPECT_THAT(Find("::ffff:10.1.2.3", {"10.1.2.3/32"}), IsOkAndHolds("10.1.2.3/32"));
  EXPECT_THAT(Find("::ffff:10.1.2.3", {"0.0.0.0/0"}), IsOkAndHolds("0.0.0.0/0"));
  EXPECT_THAT(Find("fd00:7::1", {"fd00:7::/32"}), IsOkAndHolds("fd00:7::/32"));
  EXPECT_FALSE(Find("::ffff:10.2.2.3", {"10.1.0.0/16"}).ok());
  EXPECT_FALSE(Find("::ffff:10.1.2.2", {"10.1.2.3/32"}).ok());
  EXPECT_FALSE(Find("fd00:8::1", {"fd00:7::/32", "0.0.0.0/0"}).ok());
}

TEST(DataExposureTest, AMalformedNetworkIsRefusedWhateverElseAllows) {
  for (const char* text :
       {"", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/+8", "10.0.0.0/8 ",
        "10.0.0/8", "10.1.0.0/8", "eth0/8", "::/129", "fd00::1/16", "/8"}) {
    EXPECT_THAT(Find("::ffff:10.1.2.3", {"10.0.0.0/8", text}, true),
                IsRefused(std::string("trusted network \"") + text + "\""));
  }
}

TEST(DataExposureTest, OnlyWhatIsExposedIsWarnedOf) {
  std::vector<std::string> warnings;
  const ScopedLogSink sink([&](const LogRecord& record) { warnings.push_back(record.ToJson()); });
  EXPECT_OK(CheckDataExposure({.interfaces = {"lo"}}));
  EXPECT_TRUE(warnings.empty());
  const DataTransportOptions rdma = {.kind = DataTransport::kUcx, .interfaces = {"mlx5_0:1"}};
  EXPECT_THAT(CheckDataExposure(rdma), IsRefused("a device without an IP address"));
  DataTransportOptions allowed = rdma;
  allowed.insecure = true;
  EXPECT_OK(CheckDataExposure(allowed));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], AllOf(HasSubstr("insecure_data_plane"), HasSubstr("mlx5_0:1")));
  EXPECT_THAT(CheckDataExposure({.interfaces = {"none"}}),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("\"none\"")));
}

}  // namespace
}  // namespace crossmesh
