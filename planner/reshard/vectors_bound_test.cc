// Slices and bounds of tests/data/cross_mesh_vectors.json.

#include "common/mesh/box.h"
#include "common/testing/status_matchers.h"
#include "planner/network/bound.h"
#include "planner/reshard/published/slices.h"
#include "planner/reshard/testing/cross_mesh_vectors.h"
#include "planner/reshard/testing/problem_fixture.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using Json = nlohmann::json;

std::vector<std::string> Names(std::span<const DeviceRank> devices, const TensorTable& tensors) {
  std::vector<std::string> names;
  for (const DeviceRank d : devices) names.push_back(ToString(tensors.devices()[d]).substr(1));
  return names;
}

std::vector<DeviceRank> InPlace(const Slicing& slicing, ClassIndex c) {
  std::vector<DeviceRank> result;
  std::ranges::set_intersection(slicing.holders(c), slicing.receivers(c),
                                std::back_inserter(result));
  return result;
}

std::vector<Box> BoxesOf(const Json& json) {
  std::vector<Box> boxes;
  for (const Json& box : json) {
    absl::InlinedVector<Interval, 4> intervals;
    for (const Json& i : box) intervals.push_back({i[0].get<int64_t>(), i[1].get<int64_t>()});
    boxes.push_back(Box(std::move(intervals)));
  }
  return boxes;
}

// The class's cells and the boxes, which are disjoint on both sides, contain the same elements.
void ExpectSameElements(const GroupGrid& grid, ClassIndex c, const std::vector<Box>& boxes) {
  const int64_t index = grid.FindClass(c);
  ASSERT_GE(index, 0);
  int64_t cell_elements = 0, box_elements = 0, common = 0;
  for (const Box& box : boxes) box_elements += box.volume();
  for (int32_t i = grid.first[index]; i < grid.first[index + 1]; ++i) {
    const Box cell = grid.CellBox(grid.cells[i]);
    cell_elements += cell.volume();
    for (const Box& box : boxes) {
      if (const auto part = Intersect(cell, box)) common += part->volume();
    }
  }
  EXPECT_EQ(cell_elements, box_elements);
  EXPECT_EQ(cell_elements, common);
}

TEST(VectorsBoundTest, ThereAre79Vectors) { EXPECT_EQ(CrossMeshVectors().size(), 79u); }

TEST(VectorsBoundTest, SlicesHaveTheirElementsAndDevicesAndOrder) {
  for (const CrossMeshVector& v : CrossMeshVectors()) {
    SCOPED_TRACE(v.id);
    const ProblemFixture fixture(*v.tensors, v.topology);
    ASSERT_OK_AND_ASSIGN(const Slices slices, Slices::List("test", *v.tensors, fixture.slicing));
    ASSERT_EQ(slices.all().size(), v.json["slices"].size());
    for (size_t i = 0; i < slices.all().size(); ++i) {
      SCOPED_TRACE(i);
      const Slice& slice = slices.all()[i];
      const Json& expected = v.json["slices"][i];
      EXPECT_EQ(slice.tensor, expected["tensor"].get<int32_t>());
      EXPECT_EQ(slice.bytes(), expected["bytes"].get<int64_t>());
      EXPECT_EQ(Json(Names(slices.holders(slice), *v.tensors)), expected["holders"]);
      EXPECT_EQ(Json(Names(slices.receivers(slice), *v.tensors)), expected["receivers"]);
      EXPECT_THAT(
          Names(InPlace(fixture.slicing, slice.slice_class), *v.tensors),
          testing::UnorderedElementsAreArray(expected["in_place"].get<std::vector<std::string>>()));
      ExpectSameElements(fixture.slicing.grid(slice.tensor), slice.slice_class,
                         BoxesOf(expected["boxes"]));
    }
  }
}

TEST(VectorsBoundTest, HostsReceiveAndSolelyHoldTheirBytes) {
  for (const CrossMeshVector& v : CrossMeshVectors()) {
    SCOPED_TRACE(v.id);
    const ProblemFixture fixture(*v.tensors, v.topology);
    const Demands& demands = fixture.groups.demands;
    const size_t hosts = fixture.network.hosts.size();
    std::vector<int64_t> in(hosts), sole_out(hosts);
    for (const Demand& d : demands.demands) {
      for (const HostRank h : demands.receivers(d)) in[h] += d.bytes;
      if (demands.holders(d).size() == 1) sole_out[demands.holders(d)[0]] += d.bytes;
    }
    for (size_t h = 0; h < hosts; ++h) {
      const Json& expected = v.json["host_bytes"][fixture.network.hosts[h].substr(1)];
      EXPECT_EQ(in[h], expected["in"].get<int64_t>()) << "host " << h;
      EXPECT_EQ(sole_out[h], expected["sole_out"].get<int64_t>()) << "host " << h;
    }
  }
}

TEST(VectorsBoundTest, TermsOfTheBoundAreExact) {
  std::set<std::string> above_terms;
  for (const CrossMeshVector& v : CrossMeshVectors()) {
    SCOPED_TRACE(v.id);
    const ExactBound bound = ProblemFixture(*v.tensors, v.topology).bound;
    const Json& expected = v.json["bound"];
    EXPECT_EQ(bound.ingress.seconds, FractionOf(expected["ingress"]));
    EXPECT_EQ(bound.uplink.seconds, FractionOf(expected["uplink"]));
    if (v.has_racks()) {
      EXPECT_EQ(bound.rack_ingress.seconds, FractionOf(expected["rack_ingress"]));
      EXPECT_EQ(bound.rack_uplink.seconds, FractionOf(expected["rack_uplink"]));
    }
    EXPECT_EQ(bound.seconds(), FractionOf(expected["time"]));
    if (bound.seconds() > bound.terms()) above_terms.insert(v.id);
  }
  // The only vector in which hosts and racks together need longer than each by themselves.
  EXPECT_THAT(above_terms, testing::ElementsAre("K4"));
}

// Without racks the cheapest delivery of a byte at given port prices buys every receiver's in port,
// one out port of a holder, and for the other receivers an out port of a holder or receiver.
double PriceOfDelivery(const Demands& demands, const Demand& demand, const std::vector<double>& out,
                       const std::vector<double>& in) {
  double price = 0, of_holders = 1e30;
  for (const HostRank h : demands.holders(demand)) of_holders = std::min(of_holders, out[h]);
  double of_all = of_holders;
  for (const HostRank h : demands.receivers(demand)) {
    price += in[h];
    of_all = std::min(of_all, out[h]);
  }
  const double others = static_cast<double>(demands.receivers(demand).size()) - 1;
  return static_cast<double>(demand.bytes) * (price + of_holders + others * of_all);
}

TEST(VectorsBoundTest, PricesProveTheBound) {
  for (const CrossMeshVector& v : CrossMeshVectors()) {
    if (v.has_racks()) continue;
    SCOPED_TRACE(v.id);
    const ProblemFixture fixture(*v.tensors, v.topology);
    const HostNetwork& network = fixture.network;
    const Bound bound = ToBound(fixture.bound, network);
    std::vector<double> out(network.hosts.size()), in(network.hosts.size());
    double rate = 0;
    for (const PortPrice& p : bound.proof) {
      const size_t host = std::ranges::find(network.hosts, p.name) - network.hosts.begin();
      const bool is_out = p.port == PortPrice::Port::kHostOut;
      ASSERT_TRUE(is_out || p.port == PortPrice::Port::kHostIn);
      (is_out ? out : in)[host] = p.price;
      rate += p.price *
              static_cast<double>((is_out ? network.host_rates.out : network.host_rates.in)[host]);
    }
    if (bound.proof.empty()) {
      EXPECT_EQ(bound.seconds, 0);
      continue;
    }
    double price = 0;
    for (const Demand& d : fixture.groups.demands.demands) {
      price += PriceOfDelivery(fixture.groups.demands, d, out, in);
    }
    EXPECT_NEAR(price / rate, bound.seconds, 1e-9 * bound.seconds);
  }
}

TEST(VectorsBoundTest, RackPortsAreNamedInTheProof) {
  for (const CrossMeshVector& v : CrossMeshVectors()) {
    if (v.id != "K3") continue;
    const ProblemFixture fixture(*v.tensors, v.topology);
    const Bound bound = ToBound(fixture.bound, fixture.network);
    ASSERT_FALSE(bound.proof.empty());
    EXPECT_EQ(bound.proof[0].port, PortPrice::Port::kRackUp);
    EXPECT_EQ(bound.proof[0].name, "r0");
  }
}

}  // namespace
}  // namespace crossmesh
