#include "client/planning/layout_rule_text.h"
#include "client/python/extension/bindings.h"
#include "client/python/extension/python_values.h"
#include "common/base/streaming_copy.h"
#include "common/mesh/data_type.h"
#include "common/mesh/device.h"
#include "common/mesh/manifest.h"
#include "common/mesh/mesh.h"
#include "common/plan/storage_layout.h"
#include "common/plan/tensor_table.h"
#include "common/python/raised_status.h"
#include "common/reshard/reshard_tensors.h"
#include "crossmesh/v1/tensor.pb.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

namespace crossmesh {
namespace nb = nanobind;
namespace {

nb::list RowsOf(const std::string& text) {
  nb::list rows;
  for (const v1::LayoutRule& rule : OrRaise(SplitRules(text))) {
    rows.append(nb::make_tuple(rule.pattern(), rule.layout(), rule.on(), rule.dtype()));
  }
  return rows;
}

DeviceRank RankOf(const TensorTable& tensors, const Mesh& mesh, const std::string& text) {
  const std::vector<DeviceId> devices = OrRaise(ParseDevices(text));
  const std::optional<DeviceRank> rank =
      devices.size() == 1 ? tensors.FindDevice(devices.front()) : std::nullopt;
  if (!rank) {
    RaiseStatus(
        absl::NotFoundError(absl::StrCat("device \"", text, "\": expected one of mesh ",
                                         ToString(mesh), ", found none that has a tensor")));
  }
  return *rank;
}

// By name: offset, type, and the boxes of the tile. What has equal tiles shares them.
nb::dict TilesOf(const TensorTable& tensors, const Manifest& manifest, const StorageLayout& layout,
                 DeviceRank device) {
  std::vector<nb::object> tile_of_group;
  for (int32_t group = 0; group < std::ssize(tensors.groups()); ++group) {
    const nb::list boxes = ToPython(tensors.TileOf(Side::kSource, group, device));
    tile_of_group.push_back(nb::tuple(boxes));
  }
  nb::dict tiles;
  for (size_t tensor = 0; tensor < manifest.tensors().size(); ++tensor) {
    const int64_t offset = layout.offset_of_tensor[tensor];
    if (offset < 0) continue;
    const int32_t group = tensors.group_of_tensor()[tensor];
    const std::string type(DataTypeName(tensors.TypeOf(Side::kSource, group)));
    tiles[manifest.tensors()[tensor].name.c_str()] =
        nb::make_tuple(offset, type, tile_of_group[group]);
  }
  return tiles;
}

nb::tuple LayOutStorage(const Manifest& manifest, const Mesh& mesh, const TextRules& rules,
                        const std::string& device) {
  const ReshardLayout side{.mesh = mesh, .rules = rules.rules};
  const TensorTable tensors = OrRaise(BuildReshardTensors(manifest, side, side, {}));
  const DeviceRank rank = RankOf(tensors, mesh, device);
  const StorageLayout layout = LayOut(tensors, Side::kSource, rank);
  return nb::make_tuple(layout.bytes, TilesOf(tensors, manifest, layout, rank));
}

using WrittenBytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ReadBytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void CopyBytes(const WrittenBytes& target, const ReadBytes& source) {
  if (target.size() != source.size()) {
    RaiseStatus(absl::InvalidArgumentError(absl::StrCat(
        "source: expected ", target.size(), " bytes, as target has, found ", source.size())));
  }
  auto* const to = reinterpret_cast<std::byte*>(target.data());
  const auto* const from = reinterpret_cast<const std::byte*>(source.data());
  const nb::gil_scoped_release released;
  if (std::max<const std::byte*>(to, from) - std::min<const std::byte*>(to, from) <
      static_cast<ptrdiff_t>(target.size())) {
    std::memmove(to, from, target.size());
    return;
  }
  CopyStreaming(to, from, static_cast<int64_t>(target.size()));
  FinishStreaming();
}

}  // namespace

void BindStorage(nb::module_& module) {
  module.def("rule_rows", &RowsOf, nb::arg("text"),
             nb::sig("def rule_rows(text: str) -> list[tuple[str, str, str, str]]"),
             "Pattern, layout, coordinates and type of every rule of a text, as the API has them.");
  module.def(
      "storage_layout", &LayOutStorage, nb::arg("manifest"), nb::arg("mesh"), nb::arg("rules"),
      nb::arg("device"),
      nb::sig("def storage_layout(manifest: Manifest, mesh: Mesh, rules: Rules, device: str) -> "
              "tuple[int, dict[str, tuple[int, str, tuple[tuple[slice, ...], ...]]]]"),
      "The size of a device's storage in bytes, and by tensor that it holds a part of: where "
      "its tile begins, its type, and the tile's boxes.");
  module.def("copy_bytes", &CopyBytes, nb::arg("target").noconvert(), nb::arg("source").noconvert(),
             nb::sig("def copy_bytes(target: typing.Any, source: typing.Any) -> None"),
             "Copies past the processor's caches, where both do not overlap, without the GIL.");
}

}  // namespace crossmesh
