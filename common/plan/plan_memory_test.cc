#include "common/plan/plan_memory.h"

#include "common/base/heap_bytes.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Longer than what a string keeps in itself.
std::string LongName(char letter) { return std::string(50, letter); }

// Of an index of so many names that are short.
template <typename Value>
int64_t IndexBytes(int names) {
  absl::flat_hash_map<std::string, Value> index;
  for (int i = 0; i < names; ++i) index.emplace(absl::StrCat(i), i);
  return TableBytes(index);
}

Manifest ManifestOf(const std::vector<std::string>& names, const Shape& shape = Shape()) {
  std::vector<TensorSpec> tensors;
  for (const std::string& name : names) tensors.push_back({.name = name, .shape = shape});
  return *Manifest::Create(std::move(tensors));
}

TEST(PlanMemoryTest, AManifestKeepsItsTensorsAndAnIndexOfTheirNames) {
  EXPECT_EQ(HeapBytes(Manifest()), 0);
  // Where the index grows, and just before.
  for (const int count : {1, 2, 4, 6, 13, 14, 15, 28, 29}) {
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) names.push_back(absl::StrCat(i));
    const Manifest manifest = ManifestOf(names);
    EXPECT_EQ(HeapBytes(manifest), ArrayBytes(manifest.tensors()) + IndexBytes<int64_t>(count))
        << count;
  }
}

TEST(PlanMemoryTest, NamesAreKeptByTheListAndByTheIndex) {
  const Manifest manifest = ManifestOf({LongName('a'), LongName('b')});
  EXPECT_EQ(HeapBytes(manifest) - HeapBytes(ManifestOf({"a", "b"})), 4 * AllocationBytes(50 + 1));
}

TEST(PlanMemoryTest, AShapeOfUpToFourDimensionsKeepsNothingElsewhere) {
  const auto bytes_of = [](const char* shape) {
    return HeapBytes(ManifestOf({"w"}, *ParseShape(shape)));
  };
  EXPECT_EQ(bytes_of("[2, 2, 2, 2]"), bytes_of("[]"));
  EXPECT_EQ(bytes_of("[2, 2, 2, 2, 2]") - bytes_of("[]"), AllocationBytes(5 * sizeof(int64_t)));
}

TEST(PlanMemoryTest, ANetworkKeepsHostsRacksAndTwoIndicesOfHosts) {
  EXPECT_EQ(HeapBytes(Topology()), 0);
  const auto bytes_beside_names = [](const Topology& topology) {
    int64_t bytes = ArrayBytes(topology.hosts()) + ArrayBytes(topology.racks());
    for (const Host& host : topology.hosts()) bytes += ArrayBytes(host.nics);
    for (const Rack& rack : topology.racks()) bytes += ArrayBytes(rack.hosts);
    return bytes + IndexBytes<int>(4) + IndexBytes<int>(3);
  };
  const auto network = [](const std::string& a, const std::string& b, const std::string& nic,
                          const std::string& rack) {
    const std::vector<Nic> nics = {{nic, 1, 1}};
    return *Topology::Create({{a, nics}, {b, nics}, {"c", nics}, {"d", nics}},
                             {{rack, {a}, 1, 1}, {"short", {"c", "d"}, 1, 1}});
  };
  const Topology short_names = network("a", "b", "eth0", "rack");
  EXPECT_EQ(HeapBytes(short_names), bytes_beside_names(short_names));
  // A host in a rack is named four times, another one twice, and four hosts have a card each.
  const Topology long_names = network(LongName('a'), LongName('b'), LongName('n'), LongName('r'));
  EXPECT_EQ(HeapBytes(long_names),
            bytes_beside_names(long_names) + (4 + 2 + 4 + 1) * AllocationBytes(50 + 1));
}

int64_t BytesOf(const Layout& layout) {
  if (layout.axes() != nullptr) {
    int64_t bytes = ArrayBytes(layout.axes()->dimensions);
    for (const std::vector<std::string>& axes : layout.axes()->dimensions) {
      bytes += ArrayBytes(axes);
    }
    return bytes;
  }
  int64_t bytes = ArrayBytes(layout.tiles()->slots);
  for (const Tile& tile : layout.tiles()->slots) {
    bytes += ArrayBytes(tile);
    for (const Box& box : tile) {
      if (box.rank() > 4) bytes += AllocationBytes(box.intervals().capacity() * sizeof(Interval));
    }
  }
  return bytes;
}

// Of both sides' placements, with what the table finds for their slots: ranks, and slots by rank.
int64_t BytesOfPlacements(const TensorTable& tensors) {
  int64_t bytes = ArrayBytes(tensors.spec().sources) + ArrayBytes(tensors.spec().destinations);
  for (const Side side : {Side::kSource, Side::kDestination}) {
    for (int32_t p = 0; p < std::ssize(tensors.placements(side)); ++p) {
      const Placement& placement = tensors.placements(side)[p];
      const std::vector<DeviceRank>& slots = tensors.slots(side, p);
      bytes += HeapBytes(placement.mesh) + BytesOf(placement.layout);
      bytes += 2 * static_cast<int64_t>(sizeof(slots)) + HeapBytes(slots) +
               AllocationBytes(slots.size() * sizeof(std::pair<DeviceRank, int32_t>));
    }
  }
  return bytes;
}

int64_t BytesOf(const GroupGrid& grid) {
  int64_t bytes = ArrayBytes(grid.cuts);
  for (const std::vector<int64_t>& cuts : grid.cuts) bytes += HeapBytes(cuts);
  return bytes + HeapBytes(grid.class_of_cell) + HeapBytes(grid.classes) + HeapBytes(grid.first) +
         HeapBytes(grid.cells) + HeapBytes(grid.bytes);
}

TEST(PlanMemoryTest, APlanKeepsWhatItsTensorsAndItsSlicingAreMadeOf) {
  // Three groups and seven devices; boxes of one dimension and of five.
  const auto tensors = std::make_shared<const TensorTable>(
      TableOf({TensorOf("[8]: x=2 on a.0-1 [x] -> y=4 on b.0-3 [y]"),
               TensorOf("[4]: x=1 on a.0 [-] -> y=1 on b.0 {[0:2] [2:4]}"),
               TensorOf("[1, 1, 1, 1, 4]: x=1 on a.1 [-, -, -, -, -] -> y=1 on c.0 "
                        "{[0:1, 0:1, 0:1, 0:1, 0:4]}")}));
  ASSERT_OK_AND_ASSIGN(Slicing made, Slicing::Create(*tensors));
  const auto slicing = std::make_shared<const Slicing>(std::move(made));
  ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Create({.tensors = tensors, .slicing = slicing}));

  const TensorTable::Spec& spec = tensors->spec();
  const int64_t of_tensors =
      AllocationBytes(sizeof(TensorTable)) + BytesOfPlacements(*tensors) + ArrayBytes(spec.groups) +
      AllocationBytes(5 * sizeof(int64_t)) + HeapBytes(spec.group_of_tensor) +
      ArrayBytes(tensors->devices()) + ArrayBytes(tensors->hosts()) +
      // By device: its host and its replica; by group: its tensors, its conversion, and a bit.
      2 * AllocationBytes(7 * sizeof(int32_t)) + AllocationBytes(3 * sizeof(int64_t)) +
      AllocationBytes(3 * sizeof(int32_t)) + AllocationBytes(1);
  int64_t of_slicing = AllocationBytes(sizeof(Slicing)) + slicing->heap_bytes_of_sets() +
                       ArrayBytes(slicing->classes()) + AllocationBytes(3 * sizeof(GroupGrid));
  for (int32_t group = 0; group < 3; ++group) of_slicing += BytesOf(slicing->grid(group));
  EXPECT_EQ(HeapBytes(plan), of_tensors + of_slicing + plan.spec().broadcast_groups.heap_bytes());
}

}  // namespace
}  // namespace crossmesh
