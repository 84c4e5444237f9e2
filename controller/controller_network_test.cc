// The network that a controller plans for, over its API.

#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status_codec.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "controller/controller.h"
#include "crossmesh/v1/network_service.grpc.pb.h"
#include "crossmesh/v1/reshard_service.grpc.pb.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::Topology Describing(const std::string& host, int64_t rate) {
  v1::Topology topology;
  v1::Host& described = *topology.add_hosts();
  described.set_name(host);
  v1::Nic& nic = *described.add_nics();
  nic.set_name("eth0");
  nic.set_out_bytes_per_second(rate);
  nic.set_in_bytes_per_second(rate);
  nic.set_out_latency_ns(5);
  return topology;
}

class ControllerNetworkTest : public ::testing::Test {
 protected:
  void StartController(std::optional<Topology> topology = std::nullopt) {
    const std::string address = absl::StrCat("unix:", folder_.PathOf("controller.sock"));
    ASSERT_OK_AND_ASSIGN(controller_, Controller::Create({.listen = {address},
                                                          .metrics_listen = "",
                                                          .topology = std::move(topology)}));
    ASSERT_OK_AND_ASSIGN(const auto channel, BuildRpcChannel({.address = address}));
    networks_ = v1::NetworkService::NewStub(channel);
    reshards_ = v1::ReshardService::NewStub(channel);
  }

  v1::Network GetNetwork() {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::GetNetworkResponse response;
    EXPECT_OK(FromGrpcStatus(networks_->GetNetwork(&context, v1::GetNetworkRequest(), &response)));
    return response.network();
  }
  absl::StatusOr<v1::Network> SetNetwork(const v1::Topology& topology,
                                         std::optional<int64_t> revision = std::nullopt) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::SetNetworkRequest request;
    *request.mutable_topology() = topology;
    if (revision.has_value()) request.set_revision(*revision);
    v1::SetNetworkResponse response;
    const absl::Status status = FromGrpcStatus(networks_->SetNetwork(&context, request, &response));
    if (!status.ok()) return status;
    return response.network();
  }
  // One tensor of 64 KiB from host a to host b.
  v1::PlanSummary Plan(const std::optional<v1::Topology>& topology = std::nullopt) {
    v1::PlanReshardRequest request;
    v1::ReshardSpec& spec = *request.mutable_spec();
    v1::TensorSpec& tensor = *spec.mutable_inline_manifest()->add_tensors();
    tensor.set_name("w");
    tensor.set_dtype("F32");
    tensor.add_shape(1 << 14);
    AddSide(*spec.mutable_source(), "a.0");
    AddSide(*spec.mutable_destination(), "b.0");
    if (topology.has_value()) *spec.mutable_topology() = *topology;
    grpc::ClientContext context;
    SetDeadline(context);
    v1::PlanReshardResponse response;
    EXPECT_OK(FromGrpcStatus(reshards_->PlanReshard(&context, request, &response)));
    return response.summary();
  }
  static void AddSide(v1::ReshardSide& side, const std::string& device) {
    side.mutable_inline_mesh()->set_devices(device);
    v1::LayoutRule& rule = *side.add_rules();
    rule.set_pattern("*");
    rule.set_layout("[...]");
  }

  const TemporaryFolder folder_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<v1::NetworkService::Stub> networks_;
  std::unique_ptr<v1::ReshardService::Stub> reshards_;
};

TEST_F(ControllerNetworkTest, NobodyHasDescribedTheNetworkAtFirst) {
  StartController();
  const v1::Network network = GetNetwork();
  EXPECT_EQ(network.revision(), 0);
  EXPECT_EQ(network.source(), v1::NETWORK_SOURCE_UNSPECIFIED);
  EXPECT_FALSE(network.has_update_time());
  EXPECT_EQ(network.topology().assumed_bytes_per_second(), Topology::kAssumedBytesPerSecond);
}

TEST_F(ControllerNetworkTest, TheFileOfTheStartIsTheFirstDescription) {
  StartController(*Topology::Create({{"a", {{"eth0", 1, 2}}}}, {}));
  const v1::Network network = GetNetwork();
  EXPECT_EQ(network.revision(), 1);
  EXPECT_EQ(network.source(), v1::NETWORK_SOURCE_FILE);
  EXPECT_TRUE(network.has_update_time());
  EXPECT_EQ(network.topology().hosts(0).nics(0).in_bytes_per_second(), 2);
}

TEST_F(ControllerNetworkTest, ADescriptionIsReadAsItWasSet) {
  StartController();
  ASSERT_OK_AND_ASSIGN(const v1::Network set, SetNetwork(Describing("a", 1000)));
  EXPECT_EQ(set.revision(), 1);
  EXPECT_EQ(set.source(), v1::NETWORK_SOURCE_CLIENT);
  EXPECT_EQ(set.topology().hosts(0).nics(0).out_latency_ns(), 5);
  EXPECT_EQ(GetNetwork().SerializeAsString(), set.SerializeAsString());
}

TEST_F(ControllerNetworkTest, WhatIsRefusedChangesNothing) {
  StartController();
  ASSERT_OK(SetNetwork(Describing("a", 1000)).status());
  const std::string before = GetNetwork().SerializeAsString();
  for (const int64_t rate : {int64_t{0}, int64_t{-1}, Topology::kNicBytesPerSecondMax + 1}) {
    EXPECT_THAT(SetNetwork(Describing("a", rate)).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("host a, NIC \"eth0\""), HasSubstr("10 Tbit/s"),
                               HasSubstr(absl::StrCat("found ", rate)))));
  }
  EXPECT_THAT(SetNetwork(Describing("a", 2000), 7).status(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("expected revision 7, found 1")));
  EXPECT_EQ(GetNetwork().SerializeAsString(), before);
}

TEST_F(ControllerNetworkTest, APlanOfOneRevisionIsPlannedAgainOnAnother) {
  StartController();
  const double assumed = Plan().bound_seconds();
  EXPECT_TRUE(Plan().cached());
  v1::Topology slow = Describing("a", 1000);
  *slow.add_hosts() = Describing("b", 1000).hosts(0);
  ASSERT_OK(SetNetwork(slow).status());
  const v1::PlanSummary planned = Plan();
  EXPECT_FALSE(planned.cached());
  EXPECT_FALSE(planned.assumed_rates());
  EXPECT_NEAR(planned.bound_seconds(), 65536.0 / 1000, 1e-6);
  EXPECT_GT(planned.bound_seconds(), assumed);
  EXPECT_TRUE(Plan().cached());
}

TEST_F(ControllerNetworkTest, APlanOfItsOwnNetworkOutlivesTheRevision) {
  StartController();
  const v1::Topology own = Describing("a", 1000);
  EXPECT_FALSE(Plan(own).cached());
  ASSERT_OK(SetNetwork(Describing("a", 2000)).status());
  EXPECT_TRUE(Plan(own).cached());
}

TEST_F(ControllerNetworkTest, APlanNamesTheHostsThatTheDescriptionLacks) {
  StartController();
  EXPECT_THAT(Plan().warnings(), IsEmpty());
  ASSERT_OK(SetNetwork(Describing("a", 1000)).status());
  EXPECT_THAT(Plan().warnings(), ElementsAre(AllOf(HasSubstr("lacks b:"), HasSubstr("12.5 GB/s"))));
}

}  // namespace
}  // namespace crossmesh
