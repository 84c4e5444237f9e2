#include "worker/service/probe_service.h"

#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/server.h"
#include "common/rpc/status_codec.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "common/wire/time_codec.h"
#include "worker/probe/probe_table.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

class ProbeServiceTest : public ::testing::Test {
 protected:
  ProbeServiceTest()
      : probes_(*ProbeTable::Create({.interfaces = {"lo"}}, clock_)),
        service_(*probes_),
        server_(*RpcServer::Start({.addresses = {Address()}, .services = {&service_}})),
        stub_(v1::ProbeService::NewStub(*BuildRpcChannel({.address = Address()}))) {}
  // In the order that a worker keeps.
  ~ProbeServiceTest() override {
    probes_->Stop();
    server_->Shutdown(absl::ZeroDuration());
  }
  std::string Address() const { return absl::StrCat("unix:", folder_.PathOf("worker.sock")); }

  static v1::OpenProbeRequest Opening() {
    v1::OpenProbeRequest request;
    request.set_interface("lo");
    request.set_token("0123456789abcdef");
    *request.mutable_time() = ToProto(absl::Seconds(5));
    return request;
  }
  static v1::RunProbeRequest Running() {
    v1::RunProbeRequest request;
    request.set_interface("lo");
    request.set_ip(std::string(16, '\0'));
    request.set_port(1);
    request.set_token("0123456789abcdef");
    *request.mutable_time() = ToProto(absl::Seconds(5));
    request.set_bytes(1 << 20);
    return request;
  }
  absl::StatusOr<v1::OpenProbeResponse> Open(const v1::OpenProbeRequest& request) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::OpenProbeResponse response;
    const absl::Status status = FromGrpcStatus(stub_->OpenProbe(&context, request, &response));
    if (!status.ok()) return status;
    return response;
  }
  absl::StatusOr<v1::RunProbeResponse> Run(const v1::RunProbeRequest& request) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::RunProbeResponse response;
    const absl::Status status = FromGrpcStatus(stub_->RunProbe(&context, request, &response));
    if (!status.ok()) return status;
    return response;
  }

  const TemporaryFolder folder_;
  const RealClock clock_;
  const std::unique_ptr<ProbeTable> probes_;
  ProbeService service_;
  const std::unique_ptr<RpcServer> server_;
  const std::unique_ptr<v1::ProbeService::Stub> stub_;
};

TEST_F(ProbeServiceTest, OneProbeIsOpenedAndRun) {
  ASSERT_OK_AND_ASSIGN(const v1::OpenProbeResponse opened, Open(Opening()));
  v1::RunProbeRequest request = Running();
  request.set_ip(opened.ip());
  request.set_port(opened.port());
  ASSERT_OK_AND_ASSIGN(const v1::RunProbeResponse response, Run(request));
  EXPECT_EQ(response.received_bytes(), 1 << 20);
  EXPECT_GT(response.bytes_per_second(), 0);
  EXPECT_GT(response.round_trip_ns(), 0);
  // It is for one probe.
  EXPECT_THAT(Run(request).status(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                              HasSubstr("interface \"lo\" does not reach")));
}

TEST_F(ProbeServiceTest, ABadFieldIsRefusedByName) {
  using Open = v1::OpenProbeRequest;
  const std::vector<std::pair<std::function<void(Open&)>, std::string>> openings = {
      {[](Open& request) { request.set_interface("eth7"); }, "interface: expected one of lo"},
      {[](Open& request) { request.set_token("short"); }, "token: expected 16 bytes, found 5"},
      {[](Open& request) { request.clear_time(); }, "time: expected 10ms to 10s, found 0"}};
  for (const auto& [spoil, message] : openings) {
    v1::OpenProbeRequest request = Opening();
    spoil(request);
    EXPECT_THAT(this->Open(request).status(), StatusIs(kInvalid, HasSubstr(message)));
  }
  using Run = v1::RunProbeRequest;
  const std::vector<std::pair<std::function<void(Run&)>, std::string>> runs = {
      {[](Run& request) { request.set_interface(""); }, "interface: expected one of lo"},
      {[](Run& request) { request.set_ip("1.2.3.4"); }, "ip: expected 16 bytes, found 7"},
      {[](Run& request) { request.set_port(0); }, "port: expected 1 to 65535, found 0"},
      {[](Run& request) { request.set_port(65536); }, "port: expected 1 to 65535, found 65536"},
      {[](Run& request) { request.set_token(""); }, "token: expected 16 bytes, found 0"},
      {[](Run& request) { request.mutable_time()->set_seconds(11); }, "found 11s"},
      {[](Run& request) { request.mutable_time()->set_nanos(-1); }, "nanos"},
      {[](Run& request) { request.set_bytes(1); }, "bytes: expected 65536"}};
  for (const auto& [spoil, message] : runs) {
    v1::RunProbeRequest request = Running();
    spoil(request);
    EXPECT_THAT(this->Run(request).status(), StatusIs(kInvalid, HasSubstr(message)));
  }
}

}  // namespace
}  // namespace crossmesh
