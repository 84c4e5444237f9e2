#include "planner/reshard/testing/cross_mesh_vectors.h"

#include "common/base/check.h"
#include "common/mesh/box.h"
#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "common/mesh/shape.h"
#include "common/testing/paths.h"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using Json = nlohmann::json;

std::string AxisName(int64_t axis) { return absl::StrCat("a", axis); }

DataType TypeOfItem(int64_t bytes) {
  switch (bytes) {
    case 1:
      return DataType::kU8;
    case 2:
      return DataType::kF16;
    case 4:
      return DataType::kF32;
    default:
      return DataType::kF64;
  }
}

UnevenRule RuleOf(const std::string& name) {
  if (name == "CHUNK") return UnevenRule::kChunk;
  if (name == "NESTED_CHUNK") return UnevenRule::kNestedChunk;
  if (name == "BALANCED") return UnevenRule::kBalanced;
  return UnevenRule::kExact;
}

Mesh MeshOf(const Json& json) {
  std::vector<Axis> axes;
  for (const Json& size : json["shape"]) {
    axes.push_back({AxisName(static_cast<int64_t>(axes.size())), size.get<int64_t>()});
  }
  std::vector<DeviceId> devices;
  for (const Json& device : json["devices"]) {
    absl::StatusOr<DeviceId> id = ParseDevice(absl::StrCat("h", device.get<std::string>()));
    CHECK_OK(id);
    devices.push_back(*std::move(id));
  }
  absl::StatusOr<Mesh> mesh = Mesh::Create(std::move(axes), std::move(devices));
  CHECK_OK(mesh);
  return *std::move(mesh);
}

Box UnitBox(const std::vector<int64_t>& element) {
  absl::InlinedVector<Interval, 4> intervals;
  for (const int64_t i : element) intervals.push_back({i, i + 1});
  return Box(std::move(intervals));
}

// Layouts that no rule of ours gives become one box per element: the vectors' tensors are small.
class ElementTiles {
 public:
  ElementTiles(const Json& layout, const Mesh& mesh, const Shape& shape)
      : layout_(layout), mesh_(mesh), shape_(shape) {}

  std::vector<Tile> Build() const {
    std::vector<Tile> tiles(mesh_.slots());
    for (int64_t flat = 0; flat < shape_.elements(); ++flat) {
      std::vector<int64_t> element(shape_.rank());
      int64_t rest = flat;
      for (int d = shape_.rank() - 1; d >= 0; --d) {
        element[d] = rest % shape_[d];
        rest /= shape_[d];
      }
      for (int64_t slot = 0; slot < mesh_.slots(); ++slot) {
        if (Owns(slot, flat, element)) tiles[slot].push_back(UnitBox(element));
      }
    }
    return tiles;
  }

 private:
  bool Owns(int64_t slot, int64_t flat, const std::vector<int64_t>& element) const {
    if (layout_["kind"] == "ranges") {
      return std::ranges::any_of(layout_["slots"][slot], [&](const Json& range) {
        return range[0].get<int64_t>() <= flat && flat < range[1].get<int64_t>();
      });
    }
    for (int d = 0; d < shape_.rank(); ++d) {
      for (const Json& entry : layout_["dims"][d]) {
        const int axis = entry["axis"];
        const int64_t part = element[d] / entry["stride"].get<int64_t>() % mesh_.axes()[axis].size;
        if (part != mesh_.Coordinate(slot, axis)) return false;
      }
    }
    return true;
  }

  const Json& layout_;
  const Mesh& mesh_;
  const Shape& shape_;
};

Layout BoxesLayout(const Json& json) {
  ExplicitLayout layout;
  for (const Json& slot : json["slots"]) {
    Tile tile;
    for (const Json& box : slot) {
      absl::InlinedVector<Interval, 4> intervals;
      for (const Json& i : box) intervals.push_back({i[0].get<int64_t>(), i[1].get<int64_t>()});
      tile.push_back(Box(std::move(intervals)));
    }
    layout.slots.push_back(std::move(tile));
  }
  return Layout(std::move(layout));
}

Layout LayoutOf(const Json& json, const Mesh& mesh, const Shape& shape) {
  if (json["kind"] == "boxes") return BoxesLayout(json);
  if (json["kind"] != "axes")
    return Layout(ExplicitLayout{ElementTiles(json, mesh, shape).Build()});
  AxisLayout layout{.rule = RuleOf(json["rule"])};
  for (const Json& dimension : json["dims"]) {
    std::vector<std::string>& axes = layout.dimensions.emplace_back();
    for (const Json& axis : dimension) axes.push_back(AxisName(axis.get<int64_t>()));
  }
  return Layout(std::move(layout));
}

TensorTable TableOf(const Json& json) {
  TensorTable::Spec spec;
  for (const Json& tensor : json["tensors"]) {
    const int32_t number = static_cast<int32_t>(spec.groups.size());
    const absl::StatusOr<Shape> shape = Shape::Create(tensor["shape"].get<std::vector<int64_t>>());
    CHECK_OK(shape);
    for (const auto& [side, placements] :
         {std::pair("source", &spec.sources), std::pair("destination", &spec.destinations)}) {
      const Mesh mesh = MeshOf(tensor[side]["mesh"]);
      placements->push_back({mesh, LayoutOf(tensor[side]["layout"], mesh, *shape)});
    }
    spec.groups.push_back({.shape = *shape,
                           .type = TypeOfItem(tensor["item_bytes"]),
                           .source = number,
                           .destination = number});
    spec.group_of_tensor.push_back(number);
  }
  absl::StatusOr<TensorTable> table = TensorTable::Create(std::move(spec));
  CHECK_OK(table) << json["id"];
  return *std::move(table);
}

std::string HostName(const Json& id) { return absl::StrCat("h", id.get<int64_t>()); }

Topology TopologyOf(const Json& network) {
  std::vector<Host> hosts;
  for (const Json& host : network["hosts"]) {
    Host& added = hosts.emplace_back(Host{.name = HostName(host["id"])});
    for (const Json& nic : host["nics"]) {
      added.nics.push_back({.name = absl::StrCat("nic", added.nics.size()),
                            .out_bytes_per_second = nic["out"],
                            .in_bytes_per_second = nic["in"]});
    }
  }
  std::vector<Rack> racks;
  for (const Json& rack : network.value("racks", Json::array())) {
    Rack& added = racks.emplace_back(Rack{.name = absl::StrCat("r", rack["id"].get<int64_t>())});
    for (const Json& host : rack["hosts"]) added.hosts.push_back(HostName(host));
    added.up_bytes_per_second = rack["up"];
    added.down_bytes_per_second = rack["down"];
  }
  absl::StatusOr<Topology> topology = Topology::Create(std::move(hosts), std::move(racks));
  CHECK_OK(topology);
  return *std::move(topology);
}

std::vector<CrossMeshVector> Load() {
  std::ifstream file(SourcePath("tests/data/cross_mesh_vectors.json"));
  const Json json = Json::parse(file);
  std::vector<CrossMeshVector> vectors;
  for (const Json& vector : json["vectors"]) {
    vectors.push_back({.id = vector["id"],
                       .tensors = std::make_shared<const TensorTable>(TableOf(vector)),
                       .topology = TopologyOf(vector["network"]),
                       .json = vector});
  }
  return vectors;
}

}  // namespace

const std::vector<CrossMeshVector>& CrossMeshVectors() {
  static const auto& vectors = *new std::vector<CrossMeshVector>(Load());
  return vectors;
}

Fraction FractionOf(const Json& json) {
  if (!json.is_array()) return Fraction(json.get<int64_t>());
  return Fraction(json[0].get<int64_t>(), json[1].get<int64_t>());
}

}  // namespace crossmesh
