// Both ends of a probe, over the loopback interface.

#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/testing/status_matchers.h"
#include "worker/probe/probe_listener.h"
#include "worker/probe/probe_sender.h"
#include "worker/transport/socket/network_interface.h"
#include "worker/transport/socket/tcp_socket.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

constexpr ProbeToken kToken = {'t', 'o', 'k', 'e', 'n'};
constexpr int64_t kBytes = 8 << 20;

class ProbeTest : public ::testing::Test {
 protected:
  ProbeTest() : stop_(*EventFd::Create()), listener_(*ProbeListener::Open("lo", kToken)) {}
  ~ProbeTest() override { server_.Join(); }

  ProbePatience For(absl::Duration time) const {
    return {.clock = clock_, .end = clock_.Monotonic() + time, .stop = stop_};
  }
  void Serve(absl::Duration time = absl::Seconds(20)) {
    server_ =
        Thread("listener", [this, patience = For(time)] { served_ = listener_.Serve(patience); });
  }
  absl::StatusOr<ProbeReport> Served() {
    server_.Join();
    return *served_;
  }
  ProbeOrder Order(const ProbeToken& token = kToken) const {
    return {.interface = "lo",
            .to = listener_.endpoint(),
            .token = token,
            .time = absl::Seconds(10),
            .bytes = kBytes};
  }
  // A stranger that knows the address but not the token.
  UniqueFd Stranger() const {
    TimedSocket socket(*ConnectFrom(*FindInterface("lo"), listener_.endpoint()),
                       For(absl::Seconds(10)));
    EXPECT_OK(socket.FinishConnect(clock_.Monotonic() + absl::Seconds(10)));
    return UniqueFd(dup(socket.fd()));
  }

  const RealClock clock_;
  EventFd stop_;
  ProbeListener listener_;
  Thread server_;
  std::optional<absl::StatusOr<ProbeReport>> served_;
};

TEST_F(ProbeTest, ReportsWhatArrivedAndHowSoon) {
  Serve();
  ASSERT_OK_AND_ASSIGN(const ProbeFigures figures, SendProbe(Order(), For(absl::Seconds(20))));
  ASSERT_OK_AND_ASSIGN(const ProbeReport report, Served());
  EXPECT_EQ(figures.report, report);
  EXPECT_EQ(report.received_bytes, kBytes);
  EXPECT_GT(report.bytes_per_second, 0);
  EXPECT_GT(figures.round_trip, absl::ZeroDuration());
  EXPECT_LT(figures.round_trip, absl::Seconds(1));
}

TEST_F(ProbeTest, TimeEndsAProbeAsWell) {
  Serve();
  ProbeOrder order = Order();
  order.time = absl::Milliseconds(20);
  order.bytes = kProbeBytesMax;
  const absl::Duration begin = clock_.Monotonic();
  ASSERT_OK_AND_ASSIGN(const ProbeFigures figures, SendProbe(order, For(absl::Seconds(20))));
  EXPECT_LT(clock_.Monotonic() - begin, absl::Seconds(10));
  EXPECT_GT(figures.report.received_bytes, 0);
  EXPECT_LT(figures.report.received_bytes, kProbeBytesMax);
}

TEST_F(ProbeTest, BytesOfOthersDoNotCount) {
  const UniqueFd silent = Stranger();
  const UniqueFd loud = Stranger();
  const std::string noise(1 << 16, 'x');
  EXPECT_GT(send(loud.get(), noise.data(), noise.size(), MSG_NOSIGNAL), 0);
  Serve();
  // The listener hangs up on it.
  EXPECT_THAT(SendProbe(Order({'w', 'r', 'o', 'n', 'g'}), For(absl::Seconds(20))).status(),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_OK(SendProbe(Order(), For(absl::Seconds(20))).status());
  ASSERT_OK_AND_ASSIGN(const ProbeReport report, Served());
  EXPECT_EQ(report.received_bytes, kBytes);
}

TEST_F(ProbeTest, ManySilentCallersMakeRoom) {
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 40; ++i) strangers.push_back(Stranger());
  Serve();
  EXPECT_OK(SendProbe(Order(), For(absl::Seconds(20))).status());
  EXPECT_OK(Served().status());
}

TEST_F(ProbeTest, AListenerWaitsForItsTimeOnly) {
  const UniqueFd silent = Stranger();
  Serve(absl::Milliseconds(20));
  EXPECT_THAT(Served().status(), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(ProbeTest, AListenerThatIsToldToStopStops) {
  Serve(absl::Minutes(10));
  stop_.Signal();
  EXPECT_THAT(Served().status(), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(ProbeTest, ASenderThatIsToldToStopStops) {
  Serve();
  ProbeOrder order = Order();
  order.bytes = kProbeBytesMax;
  order.time = absl::Minutes(10);
  std::optional<absl::StatusOr<ProbeFigures>> sent;
  Thread sender("sender", [&] { sent = SendProbe(order, For(absl::Minutes(10))); });
  stop_.Signal();
  sender.Join();
  EXPECT_FALSE((*sent).ok());
}

TEST_F(ProbeTest, WithoutAListenerTheAddressIsNotReached) {
  ProbeOrder order = Order();
  {
    const ProbeListener gone = *ProbeListener::Open("lo", kToken);
    order.to = gone.endpoint();
  }
  EXPECT_THAT(SendProbe(order, For(absl::Seconds(20))).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("interface \"lo\" does not reach 127.0.0.1:")));
}

TEST_F(ProbeTest, AnInterfaceThatIsNotThereIsNamed) {
  ProbeOrder order = Order();
  order.interface = "nosuchdevice0";
  EXPECT_THAT(SendProbe(order, For(absl::Seconds(20))).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("nosuchdevice0")));
}

TEST(ProbeReportTest, SurvivesTheWay) {
  const ProbeReport report = {.received_bytes = int64_t{1} << 40, .bytes_per_second = 258};
  EXPECT_EQ(ProbeReport::Decode(report.Encode()), report);
}

}  // namespace
}  // namespace crossmesh
