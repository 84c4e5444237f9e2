#include "worker/probe/probe_table.h"

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/testing/status_matchers.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr ProbeToken kTokenOfTable = {'t', 'o', 'k', 'e', 'n'};
constexpr absl::Duration kTime = absl::Seconds(5);

// One answer, waited for.
class Answer {
 public:
  ProbeTable::Done Taker() {
    return [this](absl::StatusOr<ProbeFigures> figures) {
      const MutexLock lock(mutex_);
      figures_ = std::move(figures);
      changed_.SignalAll();
    };
  }
  absl::StatusOr<ProbeFigures> Wait() {
    const MutexLock lock(mutex_);
    while (!figures_.has_value()) changed_.Wait(mutex_);
    return *figures_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<absl::StatusOr<ProbeFigures>> figures_ ABSL_GUARDED_BY(mutex_);
};

class ProbeTableTest : public ::testing::Test {
 protected:
  ProbeTableTest() : table_(*ProbeTable::Create({.interfaces = {"lo"}, .probes_max = 2}, clock_)) {}

  absl::StatusOr<ProbeFigures> Send(const ProbeOrder& order) {
    Answer answer;
    table_->Send(order, answer.Taker());
    return answer.Wait();
  }
  static ProbeOrder To(const IpEndpoint& endpoint) {
    return {
        .interface = "lo", .to = endpoint, .token = kTokenOfTable, .time = kTime, .bytes = 1 << 20};
  }

  const RealClock clock_;
  const std::unique_ptr<ProbeTable> table_;
};

TEST_F(ProbeTableTest, ProbesOneAfterTheOtherLeaveNothingBehind) {
  for (int i = 0; i < 10; ++i) {
    absl::StatusOr<IpEndpoint> endpoint;
    // The threads of the probe before have answered, and end soon.
    do endpoint = table_->Listen("lo", kTokenOfTable, kTime);
    while (absl::IsResourceExhausted(endpoint.status()));
    ASSERT_OK(endpoint);
    absl::StatusOr<ProbeFigures> figures;
    do figures = Send(To(*endpoint));
    while (absl::IsResourceExhausted(figures.status()));
    ASSERT_OK(figures);
    EXPECT_EQ(figures->report.received_bytes, 1 << 20);
  }
}

TEST_F(ProbeTableTest, WhatIsOutOfRangeIsRefused) {
  EXPECT_THAT(table_->Listen("eth7", kTokenOfTable, kTime).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("expected one of lo"), HasSubstr("eth7"))));
  for (const absl::Duration time : {absl::ZeroDuration(), -kTime, absl::Seconds(11)}) {
    EXPECT_THAT(table_->Listen("lo", kTokenOfTable, time).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("time: expected 10ms")));
  }
  for (const int64_t bytes : {int64_t{0}, kProbeBytesMin - 1, kProbeBytesMax + 1}) {
    ProbeOrder order = To(IpEndpoint());
    order.bytes = bytes;
    EXPECT_THAT(Send(order).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bytes: expected 65536")));
  }
}

TEST_F(ProbeTableTest, OnlySoManyRunAtOnce) {
  ASSERT_OK(table_->Listen("lo", kTokenOfTable, kTime).status());
  ASSERT_OK(table_->Listen("lo", kTokenOfTable, kTime).status());
  EXPECT_THAT(table_->Listen("lo", kTokenOfTable, kTime).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("less than 2")));
}

TEST_F(ProbeTableTest, StoppingEndsWhatRuns) {
  ASSERT_OK(table_->Listen("lo", kTokenOfTable, kProbeTimeMax).status());
  const absl::Duration begin = clock_.Monotonic();
  table_->Stop();
  EXPECT_LT(clock_.Monotonic() - begin, kProbeTimeMax);
  EXPECT_THAT(table_->Listen("lo", kTokenOfTable, kTime).status(),
              StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace crossmesh
