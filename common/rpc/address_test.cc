#include "common/rpc/address.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <string>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(AddressTest, TextFormsSurviveParsing) {
  for (const absl::string_view text :
       {"unix:/run/crossmesh.sock", "127.0.0.1:0", "node-a:7400", "[::1]:65535", "0.0.0.0:1"}) {
    ASSERT_OK_AND_ASSIGN(const RpcAddress address, ParseRpcAddress(text));
    EXPECT_EQ(address.ToString(), text);
  }
}

TEST(AddressTest, MalformedTextIsNamed) {
  for (const absl::string_view text :
       {"", "unix:", "unix:relative", "unix:/", "unix:/a/", "host", ":1", "host:", "host:65536",
        "host:+1", "host: 1", "host:00000001", "::1:80", "[::1:80", "[]:80", "[g::]:80", "a/b:1",
        "dns:///a:1"}) {
    EXPECT_THAT(ParseRpcAddress(text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(absl::StrCat("address \"", text, "\"")),
                               HasSubstr("expected"), HasSubstr("found"))))
        << text;
  }
}

TEST(AddressTest, SocketPathsAreAsLongAsTheSystemAllows) {
  const std::string longest = absl::StrCat("unix:/", std::string(106, 'a'));
  EXPECT_OK(ParseRpcAddress(longest));
  EXPECT_THAT(ParseRpcAddress(longest + "a"), IsRefused("108 bytes, of at most 107"));
}

TEST(AddressTest, OnlySocketsAndLoopbackAreLocal) {
  for (const absl::string_view text :
       {"unix:/a", "127.0.0.1:1", "127.255.0.3:1", "[::1]:1", "localhost:1"}) {
    ASSERT_OK_AND_ASSIGN(const RpcAddress address, ParseRpcAddress(text));
    EXPECT_TRUE(address.local()) << text;
    EXPECT_OK(CheckPlaintextAllowed(address, false));
  }
  // A name is not local, however much it looks like a number: a resolver may find it anywhere.
  for (const absl::string_view text :
       {"0.0.0.0:1", "[::]:1", "128.0.0.1:1", "127.example.org:1", "127.a.b.c:1", "127.0.0.evil:1",
        "127.0.0.example:1", "127.0.0.1a:1", "127.0.1:1", "127.0.0.0.1:1", "127.0.0.256:1",
        "127.999.0.1:1", "127...:1", "127.0.0.1.:1", "node-a:1", "localhost.evil:1",
        "[::ffff:127.0.0.1]:1"}) {
    ASSERT_OK_AND_ASSIGN(const RpcAddress address, ParseRpcAddress(text));
    EXPECT_FALSE(address.local()) << text;
    EXPECT_THAT(CheckPlaintextAllowed(address, false),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(std::string(text)), HasSubstr("--insecure"))));
    EXPECT_OK(CheckPlaintextAllowed(address, true));
  }
}

}  // namespace
}  // namespace crossmesh
