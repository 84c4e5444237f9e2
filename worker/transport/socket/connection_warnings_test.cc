#include "worker/transport/socket/connection_warnings.h"

#include "common/base/fake_clock.h"
#include "common/base/log.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ConnectionWarningsTest, ThousandsOfConnectionsAreAFewLinesASecondOfEachKind) {
  FakeClock clock;
  ConnectionWarnings warnings(clock);
  std::vector<std::string> lines;
  const ScopedLogSink sink([&](const LogRecord& record) { lines.push_back(record.ToJson()); });
  for (int i = 0; i < 20'000; ++i) warnings.Malformed("192.0.2.1", "no greeting");
  warnings.TooMany(256);
  clock.Advance(absl::Seconds(1));
  warnings.Malformed("192.0.2.2", "no greeting");
  ASSERT_EQ(lines.size(), 12);
  EXPECT_THAT(lines[9], AllOf(HasSubstr("192.0.2.1"), HasSubstr(R"("left_out":0)")));
  EXPECT_THAT(lines[10], HasSubstr(R"("without_handshake_max":256,"left_out":0)"));
  EXPECT_THAT(lines[11], AllOf(HasSubstr("192.0.2.2"), HasSubstr(R"("left_out":19990)")));
}

TEST(ConnectionWarningsTest, OnesTooManyAreLimitedByThemselves) {
  FakeClock clock;
  ConnectionWarnings warnings(clock);
  std::vector<std::string> lines;
  const ScopedLogSink sink([&](const LogRecord& record) { lines.push_back(record.ToJson()); });
  for (int i = 0; i < 11; ++i) warnings.TooMany(256);
  EXPECT_EQ(lines.size(), 10);
  warnings.Malformed("192.0.2.1", "no greeting");
  ASSERT_EQ(lines.size(), 11);
  EXPECT_THAT(lines[10], HasSubstr(R"("left_out":0)"));
  clock.Advance(absl::Seconds(1));
  for (int i = 0; i < 2; ++i) warnings.TooMany(256);
  ASSERT_EQ(lines.size(), 13);
  EXPECT_THAT(lines[11], HasSubstr(R"("left_out":1)"));
  EXPECT_THAT(lines[12], HasSubstr(R"("left_out":0)"));
}

}  // namespace
}  // namespace crossmesh
