#include "controller/dispatch/gpu_calibration.h"

#include "common/testing/status_matchers.h"
#include "controller/dispatch/testing/dispatch_fixture.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class GpuCalibrationTest : public DispatchFixture {
 protected:
  GpuCalibrationTest() {
    v1::MeasureGpuResponse& figures = communicator_gateway_.figures;
    figures.set_model("H100");
    figures.set_launch_ns(1);
    figures.set_group_ns(2);
    figures.set_message_ns(3);
    figures.set_copy_bytes_per_second(4);
    figures.set_exchange_bytes_per_second(5);
    figures.set_exchange_message_bytes(6);
  }

  // A worker of a host, with GPUs HOST.0, HOST.1, ...
  void JoinGpus(const std::string& host, const std::vector<std::string>& gpus) {
    WorkerRecord record{.name = absl::StrCat("w-", host),
                        .incarnation = 1,
                        .execution_address = absl::StrCat("at-", host)};
    for (const std::string& gpu : gpus) {
      const DeviceId device = {host, static_cast<int32_t>(record.devices.size())};
      record.devices.push_back(device);
      record.gpus.push_back({device, {gpu, 1}});
    }
    ASSERT_OK(registry_.Register(std::move(record)));
  }
  void Start() {
    ASSERT_OK_AND_ASSIGN(std::vector<CalibratedHost> hosts, CalibratedHostsOf(registry_.List(), 7));
    calibration_ =
        GpuCalibration::Create({.leases = communicators_,
                                .gateway = communicator_gateway_,
                                .queue = queue_,
                                .hosts = std::move(hosts),
                                .user = "calibration",
                                .on_end = [this](absl::StatusOr<GpuCalibration::Result> result) {
                                  EXPECT_FALSE(result_.has_value()) << "ended twice";
                                  result_ = std::move(result);
                                }});
    EXPECT_OK(calibration_->Start());
    Run();
  }
  // An operation gets the GPUs, since nothing has them any more.
  void ExpectFree(const std::string& host) {
    std::optional<absl::Status> answer;
    communicators_.Want(
        "op", {{.ranks = {{absl::StrCat("GPU-", host, "0"), 1}}, .purpose = "relay", .epoch = 7}},
        [&](const absl::Status& status) { answer = status; });
    Run();
    ASSERT_TRUE(answer.has_value());
    EXPECT_OK(*answer);
    communicators_.Release("op");
    Run();
  }

  std::shared_ptr<GpuCalibration> calibration_;
  std::optional<absl::StatusOr<GpuCalibration::Result>> result_;
};

TEST_F(GpuCalibrationTest, TheGpusOfAHostMeasureTogether) {
  JoinGpus("a", {"GPU-a0", "GPU-a1"});
  JoinGpus("b", {"GPU-b0"});
  Start();
  ASSERT_TRUE(result_.has_value());
  ASSERT_OK(*result_);
  const std::vector<GpuFigures>& figures = (*result_)->figures;
  ASSERT_THAT(figures, SizeIs(3));
  EXPECT_EQ(figures[0].device, (DeviceId{"a", 0}));
  EXPECT_EQ(figures[1].device, (DeviceId{"a", 1}));
  EXPECT_EQ(figures[2].device, (DeviceId{"b", 0}));
  EXPECT_EQ(figures[1].model, "H100");
  EXPECT_EQ(figures[1].launch_ns, 1);
  EXPECT_EQ(figures[1].group_ns, 2);
  EXPECT_EQ(figures[1].message_ns, 3);
  EXPECT_EQ(figures[1].copy_bytes_per_second, 4);
  EXPECT_EQ(figures[1].exchange_bytes_per_second, 5);
  EXPECT_EQ(figures[1].exchange_message_bytes, 6);
  EXPECT_FALSE(figures[1].is_share);
  EXPECT_THAT((*result_)->failures, IsEmpty());
  EXPECT_THAT(communicator_gateway_.Heard("measure"),
              ElementsAre("at-a measure calibration@7[GPU-a0#1,GPU-a1#1] within 1m",
                          "at-a measure calibration@7[GPU-a0#1,GPU-a1#1] within 1m",
                          "at-b measure calibration@7[GPU-b0#1] within 1m"));
  ExpectFree("a");
}

TEST_F(GpuCalibrationTest, OneShareOfAGpuStandsForIt) {
  JoinGpus("a", {"GPU-a0:0", "GPU-a0:1"});
  Start();
  ASSERT_OK(*result_);
  ASSERT_THAT((*result_)->figures, SizeIs(1));
  EXPECT_TRUE((*result_)->figures[0].is_share);
}

TEST_F(GpuCalibrationTest, WithoutAGpuThatIsUpThereIsNothingToMeasure) {
  Join("a");
  Join("b", 1, 0);
  EXPECT_THAT(CalibratedHostsOf(registry_.List(), 7),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("expected a GPU that is up, found none")));
}

TEST_F(GpuCalibrationTest, AHostThatFailsLeavesTheOthers) {
  JoinGpus("a", {"GPU-a0", "GPU-a1"});
  JoinGpus("b", {"GPU-b0"});
  communicator_gateway_.Refuse("at-a", "measure", absl::UnavailableError("it is gone"));
  Start();
  ASSERT_OK(*result_);
  EXPECT_THAT((*result_)->figures, SizeIs(1));
  EXPECT_THAT((*result_)->failures, ElementsAre(StatusIs(absl::StatusCode::kUnavailable,
                                                         HasSubstr("GPU a.0: it is gone"))));
  // A communicator in the middle of whose groups a rank failed is of no use.
  EXPECT_THAT(communicator_gateway_.Heard("stop"), SizeIs(2));
  ExpectFree("a");
}

TEST_F(GpuCalibrationTest, WhereAllFailTheFirstFailureTells) {
  JoinGpus("a", {"GPU-a0"});
  communicator_gateway_.Refuse("at-a", "create", absl::ResourceExhaustedError("no memory"));
  Start();
  EXPECT_THAT(result_->status(), StatusIs(absl::StatusCode::kResourceExhausted,
                                          AllOf(HasSubstr("host a: "), HasSubstr("no memory"))));
  communicator_gateway_.Allow();
  ExpectFree("a");
}

TEST_F(GpuCalibrationTest, ItWaitsForOperationsOnTheGpus) {
  JoinGpus("a", {"GPU-a0"});
  communicators_.Want("op", {{.ranks = {{"GPU-a0", 1}}, .purpose = "relay", .epoch = 7}},
                      [](const absl::Status& status) { EXPECT_OK(status); });
  Run();
  Start();
  EXPECT_FALSE(result_.has_value());
  communicators_.Release("op");
  Run();
  ASSERT_TRUE(result_.has_value());
  EXPECT_OK(*result_);
}

TEST_F(GpuCalibrationTest, OneThatIsCancelledGivesTheGpusBack) {
  JoinGpus("a", {"GPU-a0"});
  communicator_gateway_.Hold("at-a", "measure");
  Start();
  calibration_->Cancel();
  Run();
  ASSERT_TRUE(result_.has_value());
  EXPECT_THAT(result_->status(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(communicator_gateway_.Heard("stop"), SizeIs(1));
  communicator_gateway_.AnswerOldest();  // too late
  calibration_->Cancel();
  Run();
  ExpectFree("a");
}

}  // namespace
}  // namespace crossmesh
