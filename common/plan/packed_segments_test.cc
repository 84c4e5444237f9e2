#include "common/plan/packed_segments.h"

#include "common/base/check.h"
#include "common/plan/element_boundaries.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using Bytes = std::vector<uint8_t>;

// Calls `visit` with the coordinates of every element of a box, row-major.
template <typename Visit>
void ForEachElement(const Box& box, Visit visit) {
  if (box.empty()) return;
  std::vector<int64_t> at;
  for (const Interval& interval : box.intervals()) at.push_back(interval.begin);
  while (true) {
    visit(at);
    int d = box.rank() - 1;
    while (d >= 0 && ++at[d] == box[d].end) {
      at[d] = box[d].begin;
      --d;
    }
    if (d < 0) return;
  }
}

bool IsInside(const Box& box, const std::vector<int64_t>& at) {
  for (int d = 0; d < box.rank(); ++d) {
    if (at[d] < box[d].begin || at[d] >= box[d].end) return false;
  }
  return true;
}

// The bytes of one element: a function of the tensor, the coordinates and the byte alone.
uint8_t ByteOf(int32_t tensor, const std::vector<int64_t>& at, int64_t byte) {
  uint64_t hash = 1469598103934665603ULL + static_cast<uint64_t>(tensor);
  for (const int64_t i : at) hash = (hash ^ static_cast<uint64_t>(i)) * 1099511628211ULL;
  hash = (hash ^ static_cast<uint64_t>(byte + 77)) * 1099511628211ULL;
  return static_cast<uint8_t>(hash >> 32);
}

// What a tile holds when it is filled with every element's bytes, by plain loops. An element that
// is converted keeps its first bytes, and has them again after its last.
Bytes FilledTile(const TensorTable& tensors, Side side, int32_t tensor, const Tile& tile) {
  const int32_t group = tensors.group_of_tensor()[tensor];
  const int64_t item_bytes = tensors.ItemBytesOf(side, group);
  const int64_t source_bytes = tensors.ItemBytesOf(Side::kSource, group);
  Bytes bytes;
  for (const Box& box : tile) {
    ForEachElement(box, [&](const std::vector<int64_t>& at) {
      for (int64_t b = 0; b < item_bytes; ++b) {
        bytes.push_back(ByteOf(tensor, at, b % source_bytes));
      }
    });
  }
  return bytes;
}

// A device's tiles of all tensors on one side.
struct DeviceMemory {
  std::vector<Bytes> tensors;

  static DeviceMemory Filled(const TensorTable& table, Side side, DeviceRank device) {
    DeviceMemory memory;
    for (size_t t = 0; t < table.group_of_tensor().size(); ++t) {
      const int32_t group = table.group_of_tensor()[t];
      memory.tensors.push_back(group == -1 ? Bytes()
                                           : FilledTile(table, side, static_cast<int32_t>(t),
                                                        table.TileOf(side, group, device)));
    }
    return memory;
  }
};

// The packed bytes of a class by definition: every element whose holders and receivers are those of
// the class, in order of tensors and cells.
Bytes PackedByDefinition(const TensorTable& tensors, const Slicing& slicing, ClassIndex c) {
  Bytes packed;
  for (size_t t = 0; t < tensors.group_of_tensor().size(); ++t) {
    const int32_t group = tensors.group_of_tensor()[t];
    if (group == -1) continue;
    const GroupGrid& grid = slicing.grid(group);
    for (int64_t cell = 0; cell < grid.cell_count(); ++cell) {
      if (grid.class_of_cell[cell] != c) continue;
      const Bytes bytes =
          FilledTile(tensors, Side::kDestination, static_cast<int32_t>(t), {grid.CellBox(cell)});
      packed.insert(packed.end(), bytes.begin(), bytes.end());
    }
  }
  return packed;
}

// Walks classes in source tiles in random steps: of whole elements, where they are converted.
class RandomSteps {
 public:
  RandomSteps(const TensorTable& tensors, const Slicing& slicing, RandomSource& random)
      : tensors_(tensors), slicing_(slicing), boundaries_(tensors, slicing), random_(random) {}

  int64_t Length(ClassIndex c) {
    return IsConverted(c) ? 8 * random_.Between(1, 10) : random_.Between(1, 40);
  }
  int64_t Offset(ClassIndex c) {
    const int64_t offset = random_.Between(0, slicing_.classes()[c].bytes);
    return IsConverted(c) ? boundaries_.AtOrBefore(c, offset) : offset;
  }
  // The packed bytes of a segment.
  Bytes Pack(const DeviceMemory& memory, const Segment& segment) const {
    const int32_t group = tensors_.group_of_tensor()[segment.tensor];
    const auto from = memory.tensors[segment.tensor].begin() + segment.tile_offset;
    if (tensors_.conversion_of(group) == kNoConversion)
      return Bytes(from, from + segment.tile_bytes);
    const int64_t packed_bytes = tensors_.ItemBytesOf(Side::kDestination, group);
    const int64_t tile_bytes = tensors_.ItemBytesOf(Side::kSource, group);
    Bytes packed;
    for (int64_t element = 0; element < segment.tile_bytes; element += tile_bytes) {
      for (int64_t b = 0; b < packed_bytes; ++b) packed.push_back(from[element + b % tile_bytes]);
    }
    return packed;
  }

 private:
  bool IsConverted(ClassIndex c) const { return slicing_.classes()[c].conversion != kNoConversion; }

  const TensorTable& tensors_;
  const Slicing& slicing_;
  const ElementBoundaries boundaries_;
  RandomSource& random_;
};

Bytes PackRest(const DeviceMemory& memory, ClassIndex c, PackedSegments& segments,
               RandomSteps& steps) {
  Bytes packed;
  for (Segment segment = segments.Next(steps.Length(c)); segment.bytes > 0;
       segment = segments.Next(steps.Length(c))) {
    const Bytes bytes = steps.Pack(memory, segment);
    packed.insert(packed.end(), bytes.begin(), bytes.end());
  }
  return packed;
}

void CheckHolders(const TensorTable& tensors, const Slicing& slicing, RandomSource& random) {
  RandomSteps steps(tensors, slicing, random);
  for (DeviceRank device = 0; device < std::ssize(tensors.devices()); ++device) {
    const TileMap map(tensors, slicing, Side::kSource, device);
    const DeviceMemory memory = DeviceMemory::Filled(tensors, Side::kSource, device);
    for (ClassIndex c = 0; c < std::ssize(slicing.classes()); ++c) {
      if (!std::ranges::binary_search(slicing.holders(c), device)) continue;
      PackedSegments segments(map);
      segments.Seek(c, 0);
      const Bytes expected = PackedByDefinition(tensors, slicing, c);
      ASSERT_EQ(static_cast<int64_t>(expected.size()), slicing.classes()[c].bytes);
      ASSERT_EQ(PackRest(memory, c, segments, steps), expected)
          << "class " << c << " device " << device;
      ASSERT_EQ(segments.offset(), slicing.classes()[c].bytes);
      for (int i = 0; i < 3; ++i) {
        const int64_t offset = steps.Offset(c);
        segments.Seek(c, offset);
        ASSERT_EQ(segments.offset(), offset);
        ASSERT_EQ(PackRest(memory, c, segments, steps),
                  Bytes(expected.begin() + offset, expected.end()))
            << "class " << c << " device " << device << " from " << offset;
      }
    }
  }
}

// Takes pieces of all classes of a device in any order, and finds in each what is there by
// definition.
void CheckTurns(const TensorTable& tensors, const Slicing& slicing, RandomSource& random) {
  RandomSteps steps(tensors, slicing, random);
  const auto device = static_cast<DeviceRank>(random.Between(0, std::ssize(tensors.devices()) - 1));
  const TileMap map(tensors, slicing, Side::kSource, device);
  const DeviceMemory memory = DeviceMemory::Filled(tensors, Side::kSource, device);
  std::vector<std::pair<ClassIndex, Bytes>> held;
  for (ClassIndex c = 0; c < std::ssize(slicing.classes()); ++c) {
    if (!std::ranges::binary_search(slicing.holders(c), device)) continue;
    held.emplace_back(c, PackedByDefinition(tensors, slicing, c));
  }
  if (held.empty()) return;
  PackedSegments segments(map);
  for (int turn = 0; turn < 20; ++turn) {
    const auto& [c, expected] = held[random.Between(0, std::ssize(held) - 1)];
    int64_t offset = steps.Offset(c);
    segments.Seek(c, offset);
    for (int step = 0; step < 3; ++step) {
      const Segment segment = segments.Next(steps.Length(c));
      const Bytes packed = segment.bytes > 0 ? steps.Pack(memory, segment) : Bytes();
      ASSERT_EQ(std::ssize(packed), segment.bytes);
      ASSERT_TRUE(std::ranges::equal(packed, std::span(expected).subspan(offset, segment.bytes)))
          << "class " << c << " device " << device << " at " << offset;
      offset += segment.bytes;
      ASSERT_EQ(segments.offset(), offset);
    }
  }
}

// Writes the packed bytes of a class to where the segments say, and counts how often it does so.
void Unpack(const Bytes& packed, PackedSegments& segments, DeviceMemory& memory,
            DeviceMemory& written) {
  for (int64_t at = 0; at < std::ssize(packed);) {
    const Segment segment = segments.Next(1 << 20);
    ASSERT_GT(segment.bytes, 0);
    for (int64_t i = 0; i < segment.bytes; ++i) {
      memory.tensors[segment.tensor][segment.tile_offset + i] = packed[at + i];
      ++written.tensors[segment.tensor][segment.tile_offset + i];
    }
    at += segment.bytes;
  }
}

// Unpacks every class at every receiver and expects each byte of the destination tile exactly once.
void CheckReceivers(const TensorTable& tensors, const Slicing& slicing) {
  for (DeviceRank device = 0; device < std::ssize(tensors.devices()); ++device) {
    const TileMap map(tensors, slicing, Side::kDestination, device);
    const DeviceMemory expected = DeviceMemory::Filled(tensors, Side::kDestination, device);
    DeviceMemory memory = expected;
    for (Bytes& bytes : memory.tensors) bytes.assign(bytes.size(), 0);
    DeviceMemory written = memory;
    for (ClassIndex c = 0; c < std::ssize(slicing.classes()); ++c) {
      if (!std::ranges::binary_search(slicing.receivers(c), device)) continue;
      PackedSegments segments(map);
      segments.Seek(c, 0);
      Unpack(PackedByDefinition(tensors, slicing, c), segments, memory, written);
    }
    ASSERT_EQ(memory.tensors, expected.tensors) << "device " << device;
    for (const Bytes& counts : written.tensors) {
      ASSERT_EQ(counts, Bytes(counts.size(), 1)) << "device " << device;
    }
  }
}

// The devices whose tiles of the group have the element.
std::vector<DeviceRank> DevicesWith(const TensorTable& tensors, Side side, int32_t group,
                                    const std::vector<int64_t>& at) {
  std::vector<DeviceRank> devices;
  for (DeviceRank d = 0; d < std::ssize(tensors.devices()); ++d) {
    const Tile tile = tensors.TileOf(side, group, d);
    if (std::ranges::any_of(tile, [&](const Box& box) { return IsInside(box, at); })) {
      devices.push_back(d);
    }
  }
  return devices;
}

// The sets of every element's cell are those that the tiles say.
void CheckClasses(const TensorTable& tensors, const Slicing& slicing) {
  for (int32_t g = 0; g < slicing.grids(); ++g) {
    const GroupGrid& grid = slicing.grid(g);
    for (int64_t cell = 0; cell < grid.cell_count(); ++cell) {
      const Box box = grid.CellBox(cell);
      std::vector<int64_t> corner;
      for (const Interval& interval : box.intervals()) corner.push_back(interval.begin);
      const auto holders = DevicesWith(tensors, Side::kSource, g, corner);
      const auto receivers = DevicesWith(tensors, Side::kDestination, g, corner);
      const ClassIndex c = grid.class_of_cell[cell];
      if (receivers.empty()) {
        ASSERT_EQ(c, kNoClass);
        continue;
      }
      ASSERT_TRUE(std::ranges::equal(slicing.holders(c), holders)) << "cell " << box;
      ASSERT_TRUE(std::ranges::equal(slicing.receivers(c), receivers)) << "cell " << box;
      ASSERT_EQ(slicing.Find(holders, receivers, tensors.conversion_of(g)), c);
    }
  }
}

Segment SegmentAt(PackedSegments& segments, ClassIndex c, int64_t offset) {
  segments.Seek(c, offset);
  return segments.Next(1 << 20);
}

// One holder has a class for each of 40 receivers. The first ones have two rows of a tensor, the
// last ones one row: where one class was left is the wrong place for another.
TEST(PackedSegmentsTest, ClassesByTurnsAreFoundWhereEachWasLeft) {
  TensorTable::Spec spec =
      TableSpecOf({TensorOf("[60]: x=1 on a.0 [-] -> y=40 on b.0-39 [y] balanced")});
  spec.group_of_tensor = {0, 0, 0};
  ASSERT_OK_AND_ASSIGN(const TensorTable tensors, TensorTable::Create(std::move(spec)));
  ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(tensors));
  ASSERT_EQ(slicing.classes().size(), 40u);
  const TileMap map(tensors, slicing, Side::kSource, 0);
  PackedSegments by_turns(map);
  const auto expect_found = [&](ClassIndex c, int64_t tensor) {
    const int64_t offset = tensor * slicing.grid(0).bytes[c];
    PackedSegments alone(map);
    const Segment expected = SegmentAt(alone, c, offset);
    const Segment found = SegmentAt(by_turns, c, offset);
    EXPECT_EQ(found.tensor, tensor) << "class " << c;
    EXPECT_EQ(found.tile_offset, expected.tile_offset) << "class " << c << " tensor " << tensor;
    EXPECT_EQ(found.bytes, expected.bytes) << "class " << c << " tensor " << tensor;
  };
  for (ClassIndex first = 0; first < 40; ++first) {
    for (ClassIndex second = 0; second < 40; ++second) {
      for (int64_t tensor = 0; tensor < 3; ++tensor) {
        expect_found(first, 2 - tensor);
        expect_found(second, tensor);
      }
    }
  }
}

TEST(PackedSegmentsTest, AGroupWithoutTensorsHasNoTile) {
  const TensorText tensor = TensorOf("[60]: x=1 on a.0 [-] -> x=1 on b.0 [-]");
  TensorTable::Spec spec = TableSpecOf({tensor, tensor});
  spec.group_of_tensor = {1};
  ASSERT_OK_AND_ASSIGN(const TensorTable tensors, TensorTable::Create(std::move(spec)));
  ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(tensors));
  const TileMap map(tensors, slicing, Side::kSource, 0);
  EXPECT_EQ(map.tile_bytes(0), 0);
  EXPECT_EQ(map.tile_bytes(1), 240);
}

class PackedSegmentsPropertyTest : public ::testing::TestWithParam<int> {};

TEST_P(PackedSegmentsPropertyTest, EveryHolderPacksAndEveryReceiverUnpacksByDefinition) {
  for (int i = 0; i < 500; ++i) {
    const uint64_t seed = 500 * GetParam() + i;
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    const TensorTable tensors = RandomTensorTable(random);
    ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(tensors));
    CheckClasses(tensors, slicing);
    CheckHolders(tensors, slicing, random);
    CheckReceivers(tensors, slicing);
    CheckTurns(tensors, slicing, random);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, PackedSegmentsPropertyTest, ::testing::Range(0, 8));

}  // namespace
}  // namespace crossmesh
