// What GPUs cost, measured and described over a controller's API.

#include "common/mesh/gpu_host.h"
#include "common/testing/status_matchers.h"
#include "common/wire/tensor_codec.h"
#include "controller/testing/controller_fixture.h"
#include "crossmesh/v1/network_service.grpc.pb.h"

#include <memory>
#include <string>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Networks = v1::NetworkService::Stub;

v1::MeasureGpuResponse Figures() {
  v1::MeasureGpuResponse figures;
  figures.set_model("H100");
  figures.set_launch_ns(4'000);
  figures.set_group_ns(70'000);
  figures.set_message_ns(900);
  figures.set_copy_bytes_per_second(1'200'000'000'000);
  return figures;
}

// Workers on hosts a and b, with a GPU each, in a network that is described for a.
class ControllerCalibrationTest : public ControllerFixture {
 protected:
  void Start() {
    StartController(*GpuHosts("h100x8", {"a"}));
    networks_ = v1::NetworkService::NewStub(channel_);
  }
  void StartWorkers() {
    for (const char* host : {"a", "b"}) {
      AddWorker(host, "", RankName{absl::StrCat("GPU-", host), 1})
          .communicators()
          .SetFigures(Figures());
    }
  }
  absl::StatusOr<v1::CalibrateGpusResponse> Calibrate(bool keep_description = false) {
    v1::CalibrateGpusRequest request;
    request.set_keep_description(keep_description);
    StreamReader<v1::CalibrateGpusResponse> reader(
        [&](grpc::ClientContext* context) { return networks_->CalibrateGpus(context, request); });
    return reader.Last();
  }
  v1::Network GetNetwork() {
    const auto response = Call(*networks_, &Networks::GetNetwork, {});
    EXPECT_OK(response);
    return response->network();
  }

  std::unique_ptr<Networks> networks_;
};

TEST_F(ControllerCalibrationTest, WhatIsMeasuredIsTheNextRevision) {
  Start();
  StartWorkers();
  ASSERT_OK_AND_ASSIGN(const v1::CalibrateGpusResponse response, Calibrate());
  EXPECT_EQ(response.before().revision(), 1);
  EXPECT_EQ(response.before().topology().gpu_costs().group_ns().source(), "assumed");
  EXPECT_EQ(response.network().revision(), 2);
  EXPECT_EQ(response.network().source(), v1::NETWORK_SOURCE_MEASURED);
  ASSERT_OK_AND_ASSIGN(const Topology topology, FromProto(GetNetwork().topology()));
  EXPECT_EQ(topology.gpu_costs().group_ns.value, 70'000);
  EXPECT_THAT(topology.gpu_costs().group_ns.source, StartsWith("measured on H100 at 2"));
  EXPECT_EQ(topology.FindGpu({"a", 0})->copy_bytes_per_second, 1'200'000'000'000);
  EXPECT_THAT(response.warnings(), Contains(HasSubstr("GPU b.0: the network's description does")));
  // To have measured it again is news.
  ASSERT_OK_AND_ASSIGN(const v1::CalibrateGpusResponse again, Calibrate());
  EXPECT_EQ(again.network().revision(), 3);
}

TEST_F(ControllerCalibrationTest, ADescriptionIsKeptIfTheClientWants) {
  Start();
  StartWorkers();
  ASSERT_OK_AND_ASSIGN(const v1::CalibrateGpusResponse response, Calibrate(true));
  EXPECT_EQ(response.network().revision(), 1);
  EXPECT_EQ(response.network().topology().gpu_costs().group_ns().value(), 70'000);
  EXPECT_EQ(GetNetwork().revision(), 1);
  EXPECT_EQ(GetNetwork().topology().gpu_costs().group_ns().source(), "assumed");
}

TEST_F(ControllerCalibrationTest, AWorkerThatCannotMeasureIsNamed) {
  Start();
  StartWorkers();
  workers_[0]->communicators().SetFigures(absl::FailedPreconditionError("a task runs"));
  ASSERT_OK_AND_ASSIGN(const v1::CalibrateGpusResponse response, Calibrate());
  EXPECT_THAT(response.warnings(), Contains(HasSubstr("GPU a.0: a task runs")));
  EXPECT_EQ(GetNetwork().topology().gpu_costs().group_ns().value(), 70'000);
}

TEST_F(ControllerCalibrationTest, ImpossibleFiguresChangeNothing) {
  Start();
  StartWorkers();
  v1::MeasureGpuResponse figures = Figures();
  figures.set_launch_ns(0);
  workers_[1]->communicators().SetFigures(figures);
  EXPECT_THAT(Calibrate().status(),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("GPU b.0: expected launch_ns")));
  EXPECT_EQ(GetNetwork().revision(), 1);
}

TEST_F(ControllerCalibrationTest, WithoutGpusThereIsNothingToMeasure) {
  Start();
  AddWorker("a");
  EXPECT_THAT(Calibrate().status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found none")));
  EXPECT_THAT(Calibrate().status(), StatusIs(absl::StatusCode::kFailedPrecondition))
      << "the refused one is not running";
}

}  // namespace
}  // namespace crossmesh
