#include "common/base/log.h"

#include "common/base/thread.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

LogRecord Record() {
  return {.time = absl::FromUnixMillis(1'700'000'000'123),
          .level = LogLevel::kWarning,
          .event = "hop_stalled",
          .fields = {{"peer", "worker 2"},
                     {"bytes", uint32_t{7}},
                     {"seconds", 0.5f},
                     {"forwarding", true},
                     {"nic", std::string("eth0")}}};
}

TEST(LogTest, JsonKeepsTypesAndOrder) {
  EXPECT_EQ(Record().ToJson(),
            R"({"time":"2023-11-14T22:13:20.123Z","level":"warning","event":"hop_stalled",)"
            R"("peer":"worker 2","bytes":7,"seconds":0.5,"forwarding":true,"nic":"eth0"})");
}

TEST(LogTest, TextQuotesOnlyWhereNeeded) {
  EXPECT_EQ(Record().ToText(),
            "22:13:20.123 warning hop_stalled peer=\"worker 2\" bytes=7 seconds=0.5 "
            "forwarding=true nic=eth0");
}

TEST(LogTest, JsonIsOneValidLineWhateverTheBytes) {
  LogRecord record;
  record.fields = {{"name", "a\nb\"\xff"}};
  EXPECT_NE(record.ToJson().find(R"("name":"a\nb\")"
                                 "\xef\xbf\xbd\""),
            std::string::npos);
}

TEST(LogTest, SinkReceivesRecordsOfEveryLevel) {
  std::vector<LogRecord> records;
  ScopedLogSink sink([&](const LogRecord& record) { records.push_back(record); });
  LogInfo("first", {{"n", 1}});
  LogWarning("second");
  LogError("third");
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].event, "first");
  EXPECT_EQ(records[0].fields, (std::vector<LogField>{{"n", 1}}));
  EXPECT_EQ(records[1].level, LogLevel::kWarning);
  EXPECT_EQ(records[2].level, LogLevel::kError);
}

TEST(LogTest, RecordsBelowTheMinimumLevelAreDropped) {
  int records = 0;
  ScopedLogSink sink([&](const LogRecord&) { ++records; });
  LogDebug("dropped");
  EXPECT_EQ(records, 0);
  SetMinimumLogLevel(LogLevel::kDebug);
  LogDebug("kept");
  EXPECT_EQ(records, 1);
  SetMinimumLogLevel(LogLevel::kError);
  LogWarning("dropped");
  EXPECT_EQ(records, 1);
  SetMinimumLogLevel(LogLevel::kInfo);
}

TEST(LogTest, ManyThreadsMayLog) {
  int records = 0;
  {
    ScopedLogSink sink([&](const LogRecord&) { ++records; });
    std::vector<Thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back("logger", [] {
        for (int n = 0; n < 100; ++n) LogInfo("tick", {{"n", n}});
      });
    }
    for (Thread& thread : threads) thread.Join();
  }
  EXPECT_EQ(records, 400);
}

TEST(LogTest, LevelsAreReadByName) {
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    EXPECT_EQ(ParseLogLevel(LogLevelName(level)), level);
  }
  EXPECT_EQ(ParseLogLevel("INFO"), std::nullopt);
}

TEST(LogTest, StandardErrorGetsJsonLines) {
  testing::internal::CaptureStderr();
  LogInfo("to_stderr", {{"n", 1}});
  const std::string text = testing::internal::GetCapturedStderr();
  if (text.front() == '{') {
    EXPECT_NE(text.find(R"("event":"to_stderr","n":1})"
                        "\n"),
              std::string::npos);
  } else {  // Started on a terminal.
    EXPECT_NE(text.find("info to_stderr n=1\n"), std::string::npos);
  }
}

}  // namespace
}  // namespace crossmesh
