#pragma once

#include "common/testing/status_matchers.h"
#include "controller/testing/controller_fixture.h"

#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <gtest/gtest.h>

namespace crossmesh {

// Four workers, a source mesh over two of them and a destination mesh of two replicas.
class ControllerReshardFixture : public ControllerFixture {
 protected:
  void SetUp() override {
    StartController();
    for (const char* host : {"a", "b", "c", "d"}) AddWorker(host);
    ASSERT_OK(CreateMesh("train", "shard=2", "a.0,b.0"));
    ASSERT_OK(CreateMesh("serve", "replica=2", "c.0,d.0"));
    ASSERT_OK(PutManifest("model", {"w"}));
  }

  static v1::ExecuteReshardRequest Request(const std::string& request_id) {
    v1::ExecuteReshardRequest request;
    request.set_request_id(request_id);
    v1::ReshardSpec& spec = *request.mutable_spec();
    spec.set_manifest("model");
    spec.mutable_source()->set_mesh("train");
    spec.mutable_source()->set_storage("s");
    AddRule(*spec.mutable_source(), "[shard, ...]");
    spec.mutable_destination()->set_mesh("serve");
    spec.mutable_destination()->set_storage("t");
    AddRule(*spec.mutable_destination(), "[...]");
    spec.add_replica_axes("replica");
    return request;
  }
  absl::StatusOr<v1::Operation> Get(const std::string& id) {
    v1::GetOperationRequest request;
    request.set_id(id);
    const auto response = Call(*operations_, &v1::OperationService::Stub::GetOperation, request);
    if (!response.ok()) return response.status();
    return response->operation();
  }
  absl::Status Cancel(const std::string& id, const std::string& reason) {
    v1::CancelOperationRequest request;
    request.set_id(id);
    request.set_reason(reason);
    return Call(*operations_, &v1::OperationService::Stub::CancelOperation, request).status();
  }
  void HoldAll() {
    for (const auto& worker : workers_) worker->SetManner(FakeWorker::Manner::kHolding);
  }
};

}  // namespace crossmesh
