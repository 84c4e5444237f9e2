// The network that a controller plans for, over its API.

#include "common/testing/status_matchers.h"
#include "common/wire/session_protocol.h"
#include "controller/testing/controller_fixture.h"
#include "crossmesh/v1/network_service.grpc.pb.h"

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
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Networks = v1::NetworkService::Stub;

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

class ControllerNetworkTest : public ControllerFixture {
 protected:
  void Start(std::optional<Topology> topology = std::nullopt) {
    StartController(std::move(topology));
    networks_ = v1::NetworkService::NewStub(channel_);
  }
  // Workers on hosts a, b and c, whose links are all alike.
  void StartWorkers() {
    for (const char* host : {"a", "b", "c"}) {
      AddWorker(host).probes().SetResult(absl::OkStatus(), 1000, absl::Microseconds(40));
    }
  }

  v1::Network GetNetwork() {
    const auto response = Call(*networks_, &Networks::GetNetwork, {});
    EXPECT_OK(response);
    return response->network();
  }
  absl::StatusOr<v1::Network> SetNetwork(const v1::Topology& topology,
                                         std::optional<int64_t> revision = std::nullopt) {
    v1::SetNetworkRequest request;
    *request.mutable_topology() = topology;
    if (revision.has_value()) request.set_revision(*revision);
    const auto response = Call(*networks_, &Networks::SetNetwork, request);
    if (!response.ok()) return response.status();
    return response->network();
  }
  // One tensor of 64 KiB from host a to host b.
  static v1::ReshardSpec Spec() {
    v1::ReshardSpec spec;
    AddTensor(spec, 1 << 14);
    SetSide(*spec.mutable_source(), "", "a.0", "[...]");
    SetSide(*spec.mutable_destination(), "", "b.0", "[...]");
    return spec;
  }
  v1::PlanSummary Plan(const std::optional<v1::Topology>& topology = std::nullopt) {
    v1::PlanReshardRequest request;
    *request.mutable_spec() = Spec();
    if (topology.has_value()) *request.mutable_spec()->mutable_topology() = *topology;
    const auto response = Call(*reshards_, &v1::ReshardService::Stub::PlanReshard, request);
    EXPECT_OK(response);
    return response->summary();
  }

  using Measurement = StreamReader<v1::MeasureNetworkResponse>;
  Measurement StartMeasuring(
      const v1::MeasureNetworkRequest& request = v1::MeasureNetworkRequest()) {
    return Measurement(
        [&](grpc::ClientContext* context) { return networks_->MeasureNetwork(context, request); });
  }
  static absl::StatusOr<v1::MeasureNetworkResponse::Result> ResultOf(Measurement& measurement) {
    const auto last = measurement.Last();
    if (!last.ok()) return last.status();
    return last->result();
  }
  absl::StatusOr<v1::MeasureNetworkResponse::Result> Measure(
      const v1::MeasureNetworkRequest& request = v1::MeasureNetworkRequest()) {
    Measurement measurement = StartMeasuring(request);
    return ResultOf(measurement);
  }
  // One that waits for a probe of w-a.
  Measurement StartHeldMeasurement() {
    workers_[0]->probes().Hold();
    return StartMeasuring();
  }

  std::unique_ptr<Networks> networks_;
};

TEST_F(ControllerNetworkTest, TheNetworkIsNotDescribedAtFirst) {
  Start();
  const v1::Network network = GetNetwork();
  EXPECT_EQ(network.revision(), 0);
  EXPECT_EQ(network.source(), v1::NETWORK_SOURCE_UNSPECIFIED);
  EXPECT_FALSE(network.has_update_time());
  EXPECT_EQ(network.topology().assumed_bytes_per_second(), Topology::kAssumedBytesPerSecond);
}

TEST_F(ControllerNetworkTest, TheFileOfTheStartIsTheFirstDescription) {
  Start(*Topology::Create({{"a", {{"eth0", 1, 2}}}}, {}));
  const v1::Network network = GetNetwork();
  EXPECT_EQ(network.revision(), 1);
  EXPECT_EQ(network.source(), v1::NETWORK_SOURCE_FILE);
  EXPECT_TRUE(network.has_update_time());
  EXPECT_EQ(network.topology().hosts(0).nics(0).in_bytes_per_second(), 2);
}

TEST_F(ControllerNetworkTest, ADescriptionIsReadAsItWasSet) {
  Start();
  ASSERT_OK_AND_ASSIGN(const v1::Network set, SetNetwork(Describing("a", 1000)));
  EXPECT_EQ(set.revision(), 1);
  EXPECT_EQ(set.source(), v1::NETWORK_SOURCE_CLIENT);
  EXPECT_EQ(set.topology().hosts(0).nics(0).out_latency_ns(), 5);
  EXPECT_EQ(GetNetwork().SerializeAsString(), set.SerializeAsString());
}

TEST_F(ControllerNetworkTest, WhatIsRefusedChangesNothing) {
  Start();
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
  Start();
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
  Start();
  const v1::Topology own = Describing("a", 1000);
  EXPECT_FALSE(Plan(own).cached());
  ASSERT_OK(SetNetwork(Describing("a", 2000)).status());
  EXPECT_TRUE(Plan(own).cached());
}

TEST_F(ControllerNetworkTest, APlanNamesTheHostsThatTheDescriptionLacks) {
  Start();
  EXPECT_THAT(Plan().warnings(), IsEmpty());
  ASSERT_OK(SetNetwork(Describing("a", 1000)).status());
  EXPECT_THAT(Plan().warnings(), ElementsAre(AllOf(HasSubstr("lacks b:"), HasSubstr("12.5 GB/s"))));
}

TEST_F(ControllerNetworkTest, WhatIsMeasuredBecomesTheDescriptionAndRacksStay) {
  Start(*Topology::Create({{"a", {{"old", 1, 2}}, {}, 77}, {"z", {{"eth0", 3, 4}}}},
                          {{"r", {"a", "z"}, 5, 6}}));
  StartWorkers();
  workers_[1]->probes().SetResult(absl::OkStatus(), 500, absl::Microseconds(40));
  ASSERT_OK_AND_ASSIGN(const v1::MeasureNetworkResponse::Result result, Measure());
  EXPECT_EQ(result.links_size(), 6);
  EXPECT_EQ(result.links(0).latency_ns(), 20'000);
  EXPECT_THAT(result.warnings(), ElementsAre(HasSubstr("no worker is on z")));
  const v1::Network network = GetNetwork();
  EXPECT_EQ(network.SerializeAsString(), result.network().SerializeAsString());
  EXPECT_EQ(network.revision(), 2);
  EXPECT_EQ(network.source(), v1::NETWORK_SOURCE_MEASURED);
  const v1::Topology& topology = network.topology();
  ASSERT_EQ(topology.hosts_size(), 4);
  EXPECT_EQ(topology.hosts(0).name(), "z");
  EXPECT_EQ(topology.hosts(1).name(), "a");
  EXPECT_EQ(topology.hosts(1).local_bytes_per_second(), 77);
  EXPECT_EQ(topology.hosts(1).nics(0).name(), "eth0");
  EXPECT_EQ(topology.hosts(1).nics(0).in_latency_ns(), 10'000);
  EXPECT_EQ(topology.hosts(2).nics(0).out_bytes_per_second(), 500);
  EXPECT_EQ(topology.hosts(2).nics(0).in_bytes_per_second(), 1000);
  ASSERT_EQ(topology.racks_size(), 1);
  EXPECT_EQ(topology.racks(0).hosts_size(), 2);
}

TEST_F(ControllerNetworkTest, AnImpossibleFigureIsRefusedAndNothingIsStored) {
  Start();
  StartWorkers();
  for (const int64_t rate : {int64_t{0}, int64_t{-1}, Topology::kNicBytesPerSecondMax + 1}) {
    workers_[1]->probes().SetResult(absl::OkStatus(), rate, absl::Microseconds(40));
    EXPECT_THAT(Measure().status(),
                StatusIs(absl::StatusCode::kOutOfRange,
                         AllOf(HasSubstr("link b/eth0 to"), HasSubstr("10 Tbit/s"),
                               HasSubstr(absl::StrCat("measured ", rate)))));
  }
  EXPECT_EQ(GetNetwork().revision(), 0);
}

TEST_F(ControllerNetworkTest, AnEndOfALinkThatFailsIsNamed) {
  Start();
  StartWorkers();
  const std::vector<std::pair<absl::Status, std::vector<std::string>>> cases = {
      {absl::DeadlineExceededError("nothing more came"),
       {"link c/eth0 to", "worker w-c: nothing more came"}},
      {absl::FailedPreconditionError("no route"),
       {"c/eth0: no link", "sends", "worker w-c: no route"}},
  };
  for (const auto& [failure, said] : cases) {
    workers_[2]->probes().SetResult(failure, 0, absl::ZeroDuration());
    const absl::Status status = Measure().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    for (const std::string& words : said) EXPECT_THAT(status.message(), HasSubstr(words));
  }
  EXPECT_EQ(GetNetwork().revision(), 0);
}

TEST_F(ControllerNetworkTest, AMeasurementMayKeepTheDescription) {
  Start(*Topology::Create({{"z", {{"eth0", 3, 4}}}}, {}));
  StartWorkers();
  const std::string before = GetNetwork().SerializeAsString();
  v1::MeasureNetworkRequest request;
  request.set_keep_description(true);
  ASSERT_OK_AND_ASSIGN(const v1::MeasureNetworkResponse::Result result, Measure(request));
  EXPECT_EQ(result.links_size(), 6);
  EXPECT_THAT(result.warnings(), IsEmpty());
  EXPECT_EQ(result.network().SerializeAsString(), before);
  EXPECT_EQ(GetNetwork().SerializeAsString(), before);
}

TEST_F(ControllerNetworkTest, AMeasurementThatKeepsTheDescriptionNamesWhatReachesNoOther) {
  Start();
  StartWorkers();
  workers_[2]->probes().SetResult(absl::FailedPreconditionError("no route"), 0,
                                  absl::ZeroDuration());
  v1::MeasureNetworkRequest request;
  request.set_keep_description(true);
  ASSERT_OK_AND_ASSIGN(const v1::MeasureNetworkResponse::Result result, Measure(request));
  EXPECT_THAT(result.warnings(), Each(HasSubstr("worker w-c: no route")));
  EXPECT_FALSE(result.warnings().empty());
}

TEST_F(ControllerNetworkTest, OneMeasurementRunsAtATime) {
  Start();
  StartWorkers();
  Measurement first = StartHeldMeasurement();
  workers_[0]->probes().WaitUntilHolding();
  EXPECT_THAT(Measure().status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found another one")));
  workers_[0]->probes().Release();
  EXPECT_OK(ResultOf(first).status());
  EXPECT_OK(Measure().status());
}

TEST_F(ControllerNetworkTest, OperationsThatRunMeanwhileAreAWarning) {
  Start();
  StartWorkers();
  for (const auto& worker : workers_) worker->SetManner(FakeWorker::Manner::kHolding);
  v1::ExecuteReshardRequest request;
  request.set_request_id("held");
  *request.mutable_spec() = Spec();
  request.mutable_spec()->mutable_source()->set_storage("s");
  request.mutable_spec()->mutable_destination()->set_storage("t");
  auto operation = StartExecution(request);
  workers_[0]->WaitUntilHolding(1);
  ASSERT_OK_AND_ASSIGN(const v1::MeasureNetworkResponse::Result result, Measure());
  EXPECT_THAT(result.warnings(), ElementsAre(HasSubstr("operations ran meanwhile")));
  for (const auto& worker : workers_) worker->Release();
  EXPECT_OK(operation.Last().status());
}

TEST_F(ControllerNetworkTest, AControllerThatStopsBreaksTheMeasurementOff) {
  Start();
  StartWorkers();
  Measurement measurement = StartHeldMeasurement();
  workers_[0]->probes().WaitUntilHolding();
  controller_->Shutdown(absl::ZeroDuration());
  EXPECT_THAT(ResultOf(measurement).status(), StatusIs(absl::StatusCode::kUnavailable));
  workers_[0]->probes().Release();
}

TEST_F(ControllerNetworkTest, AChangeMeanwhileIsNotOverwritten) {
  Start();
  StartWorkers();
  Measurement measurement = StartHeldMeasurement();
  workers_[0]->probes().WaitUntilHolding();
  ASSERT_OK(SetNetwork(Describing("a", 1000)).status());
  workers_[0]->probes().Release();
  EXPECT_THAT(ResultOf(measurement).status(), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(GetNetwork().source(), v1::NETWORK_SOURCE_CLIENT);
}

TEST_F(ControllerNetworkTest, WhatCannotBeMeasuredIsRefused) {
  Start();
  EXPECT_THAT(Measure().status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("two hosts or more")));
  StartWorkers();
  v1::MeasureNetworkRequest request;
  for (const int64_t bytes : {int64_t{-1}, int64_t{65535}, (int64_t{1} << 36) + 1}) {
    request.set_link_bytes(bytes);
    EXPECT_THAT(Measure(request).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("link_bytes: expected")));
  }
  request.set_link_bytes(0);
  request.mutable_link_time()->set_seconds(11);
  EXPECT_THAT(Measure(request).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("link_time")));
}

TEST_F(ControllerNetworkTest, AWorkerWithTooManyInterfacesOrLongNamesDoesNotJoin) {
  Start();
  for (const std::vector<std::string>& interfaces :
       {std::vector<std::string>(65, "eth0"), {std::string(64, 'x')}, {""}}) {
    grpc::ClientContext context;
    SetDeadline(context);
    const auto session = sessions_->WorkerSession(&context);
    v1::WorkerSessionRequest request;
    v1::WorkerSessionRequest::Register& message = *request.mutable_register_();
    message.set_worker("w");
    message.set_devices("a.0");
    message.set_execution_address("unix:/nowhere");
    message.set_protocol(kSessionProtocols.newest);
    for (const std::string& interface : interfaces) message.add_data_interfaces(interface);
    session->Write(request);
    EXPECT_THAT(FromGrpcStatus(session->Finish()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("worker w: data_interfaces: expected")));
  }
}

}  // namespace
}  // namespace crossmesh
