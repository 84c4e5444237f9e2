#include "planner/reshard/reshard_request.h"

#include "common/mesh/gpu_host.h"
#include "common/testing/status_matchers.h"

#include <cstdint>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Topology AtRate(int64_t bytes_per_second) {
  return Topology::Create({}, {}, bytes_per_second).value();
}

TEST(ReshardRequestTest, WhatTheInputsLeaveOpenIsTheDefault) {
  ASSERT_OK_AND_ASSIGN(const ReshardRequest request,
                       RequestWithoutTensors(ReshardInputs(), AtRate(1'000)));
  EXPECT_EQ(request.strategy, Strategy::kRelay);
  EXPECT_EQ(request.chunk_bytes, 0);
  EXPECT_EQ(request.binding, BindingMode::kShadow);
  EXPECT_EQ(request.topology, AtRate(1'000));
  EXPECT_EQ(request.tensors, nullptr);
}

TEST(ReshardRequestTest, WhatTheInputsSayHolds) {
  ReshardInputs inputs;
  inputs.topology = AtRate(2'000);
  inputs.strategy = "send_recv";
  inputs.seed = 7;
  inputs.chunk_bytes = 3 * Plan::kLeafBytes;
  inputs.binding = BindingMode::kInPlace;
  inputs.shared_storage = true;
  ASSERT_OK_AND_ASSIGN(const ReshardRequest request, RequestWithoutTensors(inputs, AtRate(1'000)));
  EXPECT_EQ(request.topology, AtRate(2'000));
  EXPECT_EQ(request.strategy, Strategy::kSendRecv);
  EXPECT_EQ(request.seed, 7);
  EXPECT_EQ(request.chunk_bytes, 3 * Plan::kLeafBytes);
  EXPECT_EQ(request.binding, BindingMode::kInPlace);
  EXPECT_TRUE(request.shared_storage);
}

TEST(ReshardRequestTest, GpusReceiveInPlaceUnlessTheyReadTheSameStorage) {
  ASSERT_OK_AND_ASSIGN(const Topology topology, GpuHosts("h100x8", {"a"}));
  const auto binding_of = [&](const std::string& mesh, bool shared_storage = false) {
    ReshardInputs inputs;
    inputs.destination.mesh = std::make_shared<const Mesh>(*ParseMesh(mesh));
    inputs.shared_storage = shared_storage;
    return RequestWithoutTensors(inputs, topology)->binding;
  };
  EXPECT_EQ(binding_of("x=2 on a.0-1"), BindingMode::kInPlace);
  EXPECT_EQ(binding_of("x=2 on a.0-1", /*shared_storage=*/true), BindingMode::kShadow);
  EXPECT_EQ(binding_of("x=2 on a.0,b.0"), BindingMode::kShadow);
}

TEST(ReshardRequestTest, AnUnknownStrategyIsNamed) {
  ReshardInputs inputs;
  inputs.strategy = "telepathy";
  EXPECT_THAT(RequestWithoutTensors(inputs, Topology()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("spec.strategy: "), HasSubstr("telepathy"))));
}

}  // namespace
}  // namespace crossmesh
