#include "planner/network/gpu_bound.h"

#include "common/base/check.h"
#include "common/mesh/gpu_host.h"
#include "common/plan/testing/for_each_seed.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/tables.h"
#include "planner/network/bound.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::SizeIs;

constexpr double kNic = 50e9, kLink = 450e9;  // of an H100

Topology H100s(const std::vector<std::string>& hosts) {
  std::vector<Host> described;
  for (const std::string& host : hosts) described.push_back(*GpuHost("h100x8", host));
  return *Topology::Create(std::move(described), {});
}

Bound BoundOf(const TensorTable& table, const Topology& topology) {
  const absl::StatusOr<Slicing> slicing = Slicing::Create(table);
  CHECK_OK(slicing);
  const auto network = GpuNetworkOf(table, topology);
  CHECK(network.has_value());
  return BoundOfGpus(GroupByDevices(table, *slicing).demands, *network);
}

Bound BoundOf(const std::string& text) {
  return BoundOf(TableOf({TensorOf(text)}), H100s({"a", "b", "c", "d", "e"}));
}

TEST(GpuBoundTest, OnOneHostLinksDecide) {
  const Bound bound = BoundOf("[1000]: x=1 on a.0 [-] -> y=3 on a.1-3 [-]");
  EXPECT_DOUBLE_EQ(bound.seconds, 4000 / kLink) << "each receives all, and may pass it on";
  ASSERT_FALSE(bound.proof.empty());
  EXPECT_EQ(bound.proof[0].port, PortPrice::Port::kGpuIn);
}

TEST(GpuBoundTest, OneGpuHasOneNic) {
  EXPECT_DOUBLE_EQ(BoundOf("[1000]: x=1 on a.0 [-] -> y=1 on b.0 [-]").seconds, 4000 / kNic);
  EXPECT_DOUBLE_EQ(BoundOf("[1000]: x=1 on a.0 [-] -> y=4 on b.0,c.0,d.0,e.0 [-]").seconds,
                   4000 / kNic);
  const Bound bound = BoundOf("[1000]: x=1 on a.0 [-] -> y=2 on b.0-1 [y]");
  EXPECT_DOUBLE_EQ(bound.seconds, 4000 / kNic) << "the sender's";
  ASSERT_THAT(bound.proof, SizeIs(1));
  EXPECT_EQ(bound.proof[0].name, "a");
}

TEST(GpuBoundTest, ReceiversOfOneHostUseTheirNicsTogether) {
  EXPECT_DOUBLE_EQ(BoundOf("[1024]: x=8 on a.0-7 [x] -> y=8 on b.0-7 [-]").seconds,
                   4096 / (8 * kNic));
  EXPECT_DOUBLE_EQ(BoundOf("[1024]: x=4 on a.0-3 [x] -> y=8 on b.0-7 [-]").seconds,
                   4096 / (4 * kNic));
}

TEST(GpuBoundTest, WhatOnlyOneGpuOfAHostNeedsComesByItsNic) {
  // Of the second tensor b.1 needs nothing: hosts together could take both by two NICs.
  const TensorTable table = TableOf({TensorOf("[100]: x=2 on a.0-1 [x] -> y=2 on b.0-1 [y]"),
                                     TensorOf("[900]: x=2 on a.0-1 [x] -> y=1 on b.0 [-]")});
  const Bound bound = BoundOf(table, H100s({"a", "b"}));
  EXPECT_DOUBLE_EQ(bound.seconds, 4 * 950 / kNic);
  ASSERT_THAT(bound.proof, SizeIs(1));
  EXPECT_EQ(bound.proof[0].port, PortPrice::Port::kGpuIn);
  EXPECT_EQ(bound.proof[0].name, "b.0");
}

TEST(GpuBoundTest, SharedNicsAreBoundedByTheirHosts) {
  std::vector<Host> hosts = {*GpuHost("l40s-pcie", "a"), *GpuHost("l40s-pcie", "b")};
  const Topology topology = *Topology::Create(std::move(hosts), {});
  const TensorTable table = TableOf({TensorOf("[1000]: x=1 on a.0 [-] -> y=1 on b.0 [-]"),
                                     TensorOf("[10]: x=1 on a.1 [-] -> y=1 on b.1 [-]")});
  EXPECT_DOUBLE_EQ(BoundOf(table, topology).seconds, 4 * 1010 / 25e9);
}

// With one GPU on each host they are what hosts are.
TEST(GpuBoundTest, OneGpuAHostIsAHost) {
  ForEachSeed(300, [](RandomSource& random) {
    const TensorTable table = RandomTensorTable(random, {.hosts_max = 12});
    std::vector<Host> hosts;
    for (const std::string& name : table.hosts()) {
      hosts.push_back(
          {.name = name, .nics = {{"n", random.Between(1, 8), random.Between(1, 8)}}, .gpus = {}});
      for (int32_t d = 0; d < 64; ++d) {
        hosts.back().gpus.push_back({d, "n", 1 << 30, 1 << 30, 1});
      }
    }
    const Topology topology = *Topology::Create(std::move(hosts), {});
    const absl::StatusOr<Slicing> slicing = Slicing::Create(table);
    CHECK_OK(slicing);
    const HostNetwork as_hosts = HostNetworkOf(table, topology);
    const ExactBound expected = ComputeBound(GroupByHosts(table, *slicing).demands, as_hosts);
    const double found = BoundOf(table, topology).seconds;
    // Links are so fast that only hosts whose GPUs take in all by them count here.
    if (expected.seconds() == Fraction()) return;
    EXPECT_GE(found, expected.seconds().ToDouble() * (1 - 1e-12));
    if (table.hosts().size() != table.devices().size()) return;
    EXPECT_DOUBLE_EQ(found, expected.seconds().ToDouble());
  });
}

}  // namespace
}  // namespace crossmesh
