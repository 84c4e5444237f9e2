#include "controller/testing/controller_fixture.h"

#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "common/testing/status_matchers.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

void ControllerFixture::TearDown() {
  workers_.clear();
  controller_.reset();
}

void ControllerFixture::StartController(std::optional<Topology> topology) {
  ASSERT_OK_AND_ASSIGN(controller_, Controller::Create({.listen = {address_},
                                                        .metrics_listen = "",
                                                        .topology = std::move(topology),
                                                        .lost_after = absl::Minutes(10),
                                                        .store = store_}));
  ASSERT_OK_AND_ASSIGN(channel_, BuildRpcChannel({.address = address_}));
  meshes_ = v1::MeshService::NewStub(channel_);
  manifests_ = v1::ManifestService::NewStub(channel_);
  reshards_ = v1::ReshardService::NewStub(channel_);
  operations_ = v1::OperationService::NewStub(channel_);
  sessions_ = v1::WorkerService::NewStub(channel_);
}

void ControllerFixture::EndController() { controller_.reset(); }

FakeWorker& ControllerFixture::AddWorker(const std::string& host, const std::string& devices,
                                         std::optional<RankName> gpu) {
  workers_.push_back(std::make_unique<FakeWorker>(
      FakeWorker::Options{.folder = folder_.path(),
                          .name = absl::StrCat("w-", host),
                          .devices = devices.empty() ? absl::StrCat(host, ".0") : devices,
                          .controller = address_,
                          .gpu = std::move(gpu)}));
  return *workers_.back();
}

absl::StatusOr<int64_t> ControllerFixture::CreateMesh(const std::string& name,
                                                      const std::string& axes,
                                                      const std::string& devices) {
  v1::CreateMeshRequest request;
  request.mutable_mesh()->set_name(name);
  request.mutable_mesh()->set_axes(axes);
  request.mutable_mesh()->set_devices(devices);
  const auto response = Call(*meshes_, &v1::MeshService::Stub::CreateMesh, request);
  if (!response.ok()) return response.status();
  return response->revision();
}

absl::StatusOr<v1::PutManifestResponse> ControllerFixture::PutManifest(
    const std::string& name, const std::vector<std::string>& tensors) {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::PutManifestResponse response;
  const auto writer = manifests_->PutManifest(&context, &response);
  v1::PutManifestRequest request;
  request.set_name(name);
  request.set_tensor_count(static_cast<int64_t>(tensors.size()));
  for (size_t i = 0; i < tensors.size(); ++i) {
    v1::TensorSpec& tensor = *request.add_tensors();
    tensor.set_name(tensors[i]);
    tensor.set_dtype("F32");
    tensor.add_shape(64);
    tensor.add_shape(8);
    if (i % 1000 == 999) {
      writer->Write(request);
      request.Clear();
    }
  }
  writer->Write(request);
  writer->WritesDone();
  absl::Status status = FromGrpcStatus(writer->Finish());
  if (!status.ok()) return status;
  return response;
}

std::vector<v1::Worker> ControllerFixture::ListWorkers() {
  const auto response = Call(*sessions_, &v1::WorkerService::Stub::ListWorkers, {});
  EXPECT_OK(response);
  return {response->workers().begin(), response->workers().end()};
}

StreamReader<v1::ExecuteReshardResponse> ControllerFixture::StartExecution(
    const v1::ExecuteReshardRequest& request) {
  return StreamReader<v1::ExecuteReshardResponse>(
      [&](grpc::ClientContext* context) { return reshards_->ExecuteReshard(context, request); });
}

absl::StatusOr<v1::Operation> ControllerFixture::Execute(
    const v1::ExecuteReshardRequest& request,
    const std::function<void(const v1::Operation&)>& on_change) {
  auto reader = StartExecution(request);
  v1::Operation last;
  while (true) {
    const auto next = reader.Next();
    if (reader.ended()) break;
    if (!next.ok()) return next.status();
    EXPECT_GT(next->operation().revision(), last.revision());
    last = next->operation();
    on_change(last);
  }
  EXPECT_TRUE(last.has_report());
  return last;
}

void ControllerFixture::SetSide(v1::ReshardSide& side, const std::string& axes,
                                const std::string& devices, const std::string& layout) {
  side.mutable_inline_mesh()->set_axes(axes);
  side.mutable_inline_mesh()->set_devices(devices);
  AddRule(side, layout);
}

void ControllerFixture::AddRule(v1::ReshardSide& side, const std::string& layout) {
  v1::LayoutRule& rule = *side.add_rules();
  rule.set_pattern("*");
  rule.set_layout(layout);
}

void ControllerFixture::AddTensor(v1::ReshardSpec& spec, int64_t length) {
  v1::TensorSpec& tensor = *spec.mutable_inline_manifest()->add_tensors();
  tensor.set_name("w");
  tensor.set_dtype("F32");
  tensor.add_shape(length);
}

void ControllerFixture::WaitUntil(const std::function<bool()>& condition) {
  const RealClock clock;
  const absl::Duration end = clock.Monotonic() + absl::Seconds(30);
  while (!condition()) {
    ASSERT_LT(clock.Monotonic(), end) << "waited in vain";
  }
}

}  // namespace crossmesh
