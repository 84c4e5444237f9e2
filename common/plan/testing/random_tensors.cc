#include "common/plan/testing/random_tensors.h"

#include "common/base/check.h"
#include "common/plan/element_boundaries.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace crossmesh {
namespace {

const std::vector<std::string> kAxisNames = {"x", "y", "z"};

std::vector<DeviceId> RandomDevices(RandomSource& random, int64_t hosts, char first_host) {
  std::vector<DeviceId> devices;
  for (int64_t h = 0; h < hosts; ++h) {
    const int64_t count = random.Between(1, 4);
    for (int32_t i = 0; i < count; ++i) {
      devices.push_back({std::string(1, static_cast<char>(first_host + h)), i});
    }
  }
  return devices;
}

// A mesh over some of the devices, in random order.
Mesh RandomMesh(RandomSource& random, std::vector<DeviceId> devices, int64_t slots_max) {
  const int64_t limit = std::min<int64_t>(slots_max, static_cast<int64_t>(devices.size()));
  std::vector<Axis> axes;
  int64_t slots = 1;
  for (const std::string& name : kAxisNames) {
    if (!axes.empty() && random.OneIn(3)) continue;
    const int64_t size = random.Between(1, std::min<int64_t>(limit / slots, 5));
    axes.push_back({name, size});
    slots *= size;
  }
  random.Shuffle(axes);
  if (!random.OneIn(3)) random.Shuffle(devices);
  devices.resize(slots);
  auto mesh = Mesh::Create(std::move(axes), std::move(devices));
  CHECK_OK(mesh);
  return *std::move(mesh);
}

// The mesh, or what is left of it at a random coordinate of an axis that counts no replicas.
Mesh MaybeSubMesh(RandomSource& random, const Mesh& mesh,
                  const std::vector<std::string>& replica_axes, bool allowed) {
  if (!allowed || !random.OneIn(4) || mesh.rank() == 0) return mesh;
  const Axis& axis = random.Pick(mesh.axes());
  if (std::ranges::find(replica_axes, axis.name) != replica_axes.end()) return mesh;
  const std::vector<std::pair<std::string, int64_t>> at = {{axis.name, random.Below(axis.size)}};
  auto part = mesh.Select(at);
  CHECK_OK(part);
  return *std::move(part);
}

Shape RandomShape(RandomSource& random, const RandomTensorsOptions& options) {
  std::vector<int64_t> lengths(random.Between(0, options.rank_max));
  // Tensors of many dimensions have short ones.
  const int64_t length_max =
      lengths.size() <= 2 ? options.length_max : std::max<int64_t>(options.length_max / 2, 1);
  for (int64_t& length : lengths) {
    length = random.OneIn(25) ? 0 : random.Between(1, length_max);
  }
  auto shape = Shape::Create(lengths);
  CHECK_OK(shape);
  return *std::move(shape);
}

Layout RandomAxisLayout(RandomSource& random, const Mesh& mesh, const Shape& shape) {
  AxisLayout layout;
  layout.rule = random.Pick<UnevenRule>(
      {UnevenRule::kExact, UnevenRule::kChunk, UnevenRule::kNestedChunk, UnevenRule::kBalanced});
  layout.dimensions.resize(shape.rank());
  std::vector<Axis> axes = mesh.axes();
  random.Shuffle(axes);
  std::vector<int64_t> parts(shape.rank(), 1);
  for (const Axis& axis : axes) {
    if (shape.rank() == 0 || random.OneIn(4)) continue;  // replicates
    const int64_t d = random.Below(shape.rank());
    parts[d] *= axis.size;
    if (layout.rule == UnevenRule::kExact && shape[static_cast<int>(d)] % parts[d] != 0) {
      parts[d] /= axis.size;
      continue;
    }
    layout.dimensions[d].push_back(axis.name);
  }
  return Layout(std::move(layout));
}

// Cuts a box in two, at random, until there are `count` pieces or nothing can be cut.
std::vector<Box> RandomPieces(RandomSource& random, const Box& whole, int64_t count) {
  std::vector<Box> pieces;
  if (!whole.empty()) pieces.push_back(whole);
  for (int64_t tries = 0; tries < 3 * count && !pieces.empty(); ++tries) {
    if (static_cast<int64_t>(pieces.size()) >= count || whole.rank() == 0) break;
    Box& piece = pieces[random.Below(static_cast<int64_t>(pieces.size()))];
    const auto d = static_cast<int>(random.Below(whole.rank()));
    if (piece[d].length() < 2) continue;
    auto low = piece.intervals();
    auto high = piece.intervals();
    low[d].end = high[d].begin = random.Between(piece[d].begin + 1, piece[d].end - 1);
    piece = Box(low);
    pieces.emplace_back(high);
  }
  random.Shuffle(pieces);
  return pieces;
}

bool IsDisjoint(const Tile& tile, const Box& box) {
  return std::ranges::none_of(tile, [&](const Box& b) { return Intersect(b, box).has_value(); });
}

Layout RandomTiles(RandomSource& random, const Mesh& mesh, const Shape& shape, bool covering) {
  ExplicitLayout layout;
  layout.slots.resize(mesh.slots());
  const int64_t rounds = random.Between(1, 2);
  for (int64_t round = 0; round < rounds; ++round) {
    const auto pieces = RandomPieces(random, shape.FullBox(), random.Between(1, 2 * mesh.slots()));
    for (const Box& piece : pieces) {
      // The first round of a source reaches everything, what comes later overlaps it.
      if ((round > 0 || !covering) && random.OneIn(3)) continue;
      Tile& tile = layout.slots[random.Below(mesh.slots())];
      if (IsDisjoint(tile, piece)) tile.push_back(piece);
    }
  }
  return Layout(std::move(layout));
}

std::vector<std::string> RandomReplicaAxes(RandomSource& random, const Mesh& mesh) {
  std::vector<std::string> axes;
  for (const Axis& axis : mesh.axes()) {
    if (random.OneIn(3)) axes.push_back(axis.name);
  }
  return axes;
}

// Some that are not converted, too.
void ConvertFloats(RandomSource& random, TensorGroup& group) {
  const std::vector<DataType> floats = {DataType::kF32, DataType::kF16, DataType::kBF16};
  group.type = random.Pick(floats);
  group.sent_as = random.Pick(floats);
}

}  // namespace

TensorTable RandomTensorTable(RandomSource& random, const RandomTensorsOptions& options) {
  const std::vector<DeviceId> source_devices =
      RandomDevices(random, random.Between(1, options.hosts_max), 'a');
  std::vector<DeviceId> destination_devices = source_devices;
  if (!random.OneIn(3)) {
    // The letters decide whether the sides share hosts.
    const char first = static_cast<char>('a' + random.Below(options.hosts_max + 1));
    destination_devices = RandomDevices(random, random.Between(1, options.hosts_max), first);
  }
  const Mesh source_mesh = RandomMesh(random, source_devices, options.slots_max);
  const Mesh destination_mesh =
      random.OneIn(5) ? source_mesh : RandomMesh(random, destination_devices, options.slots_max);
  TensorTable::Spec spec;
  if (options.replicas) spec.replica_axes = RandomReplicaAxes(random, destination_mesh);

  const int64_t groups = random.Between(1, 4);
  for (int32_t g = 0; g < groups; ++g) {
    const Shape shape = RandomShape(random, options);
    const Mesh source = MaybeSubMesh(random, source_mesh, {}, options.sub_meshes);
    const Mesh destination =
        MaybeSubMesh(random, destination_mesh, spec.replica_axes, options.sub_meshes);
    const auto layout = [&](const Mesh& mesh, bool covering) {
      return options.explicit_tiles && random.OneIn(4) ? RandomTiles(random, mesh, shape, covering)
                                                       : RandomAxisLayout(random, mesh, shape);
    };
    spec.sources.push_back({source, layout(source, true)});
    spec.destinations.push_back({destination, layout(destination, false)});
    const auto type = static_cast<DataType>(random.Between(0, static_cast<int>(DataType::kF64)));
    spec.groups.push_back({shape, type, g, g});
    // Now and then another group with the same placements.
    if (random.OneIn(4)) spec.groups.push_back({shape, DataType::kU8, g, g});
    if (options.conversions && random.OneIn(3)) ConvertFloats(random, spec.groups.back());
  }
  const int64_t tensors = random.Between(1, options.tensors_max);
  for (int64_t t = 0; t < tensors; ++t) {
    const bool moved = !random.OneIn(10);
    spec.group_of_tensor.push_back(
        moved ? static_cast<int32_t>(random.Below(static_cast<int64_t>(spec.groups.size()))) : -1);
  }
  auto table = TensorTable::Create(std::move(spec));
  CHECK_OK(table);
  return *std::move(table);
}

Plan::Spec RandomPlan(RandomSource& random, const std::shared_ptr<const TensorTable>& tensors,
                      const std::shared_ptr<const Slicing>& slicing) {
  const ElementBoundaries boundaries(*tensors, *slicing);
  Plan::Spec spec{.tensors = tensors, .slicing = slicing};
  struct Piece {
    Relay relay;
    std::vector<Hop> hops;
  };
  std::vector<Piece> pieces;
  for (ClassIndex c = 0; c < static_cast<ClassIndex>(slicing->classes().size()); ++c) {
    const auto holders = slicing->holders(c);
    std::vector<DeviceRank> receivers;
    for (const DeviceRank receiver : slicing->receivers(c)) {
      if (std::ranges::binary_search(holders, receiver)) {
        spec.copies.push_back({c, receiver});
      } else {
        receivers.push_back(receiver);
      }
    }
    if (receivers.empty()) continue;
    const int64_t bytes = slicing->classes()[c].bytes;
    std::set<int64_t> cuts = {0, bytes};
    for (int64_t i = random.Below(4); i > 0; --i) {
      cuts.insert(boundaries.AtOrBefore(c, random.Below(bytes)));
    }
    for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
      Piece piece{.relay = {.slice_class = c,
                            .root = holders[random.Below(static_cast<int64_t>(holders.size()))],
                            .begin = *cut,
                            .end = *std::next(cut)}};
      random.Shuffle(receivers);
      std::vector<DeviceRank> reached = {piece.relay.root};
      for (const DeviceRank to : receivers) {
        const DeviceRank from = random.OneIn(2) ? reached.back() : random.Pick(reached);
        piece.hops.push_back({.from = from, .to = to});
        reached.push_back(to);
      }
      pieces.push_back(std::move(piece));
    }
  }
  random.Shuffle(pieces);
  for (Piece& piece : pieces) {
    piece.relay.first_hop = static_cast<int64_t>(spec.hops.size());
    piece.relay.hop_count = static_cast<int32_t>(piece.hops.size());
    spec.relays.push_back(piece.relay);
    spec.hops.insert(spec.hops.end(), piece.hops.begin(), piece.hops.end());
  }
  if (random.OneIn(2)) spec.chunk_bytes = Plan::kLeafBytes;
  // Due times of all kinds, and a segment of few or of many periods.
  for (Relay& relay : spec.relays) {
    if (random.OneIn(3)) continue;
    relay.due.begin = static_cast<int32_t>(random.Between(0, DueTime::kParts));
    relay.due.end = static_cast<int32_t>(random.Between(relay.due.begin, DueTime::kParts));
  }
  if (random.OneIn(2)) spec.periods = static_cast<int32_t>(random.Between(1, 64));
  PlaceHopsInPlanOrder(spec);
  return spec;
}

void PlaceHopsInPlanOrder(Plan::Spec& spec) {
  std::map<std::pair<DeviceRank, DeviceRank>, int32_t> places;
  for (const Relay& relay : spec.relays) {
    for (int64_t h = relay.first_hop; h < relay.first_hop + relay.hop_count; ++h) {
      Hop& hop = spec.hops[h];
      hop.place = places[{hop.from, hop.to}]++;
    }
  }
}

}  // namespace crossmesh
