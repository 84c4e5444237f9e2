#include "planner/parallelism/layouts/grid_layouts.h"

#include "common/base/status_macros.h"
#include "common/mesh/box_elements.h"
#include "common/mesh/layout.h"
#include "planner/parallelism/grid_rules.h"
#include "planner/parallelism/layouts/stored_tensors.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

constexpr int64_t kBoxesMax = 65536;

// The axes of a mesh, major first.
std::vector<GridAxis> MajorFirst() { return {kGridOrder.rbegin(), kGridOrder.rend()}; }

class RuleWriter {
 public:
  RuleWriter(const Transformer& model, const Grid& grid, VectorForm vectors)
      : model_(model), grid_(grid), vectors_(vectors) {}

  absl::Status Write(const StoredTensor& tensor) {
    for (const StoredDimension& dimension : tensor.dimensions) {
      const int64_t cuts = dimension.parts * SizeOf(dimension.axis);
      if (dimension.length % cuts == 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(tensor.pattern, ": expected a multiple of ", cuts, ", of ", dimension.parts,
                       " parts cut by ", GridAxisName(*dimension.axis), "=", SizeOf(dimension.axis),
                       ", found ", dimension.length));
    }
    RETURN_IF_ERROR(CheckShards(tensor));
    ASSIGN_OR_RETURN(std::string layout, LayoutText(tensor));
    std::vector<std::string> at;
    if (grid_.pipeline() > 1) at.push_back(StageText(tensor.place));
    if (tensor.of_experts && grid_.expert() > 1) {
      at.push_back(absl::StrCat("expert={e}/", model_.experts / grid_.expert()));
    }
    absl::StrAppend(&text_, tensor.pattern, "  ", layout, at.empty() ? "" : "  on ",
                    absl::StrJoin(at, ", "), "\n");
    return absl::OkStatus();
  }
  std::string Finish() && { return std::move(text_); }

 private:
  int64_t SizeOf(std::optional<GridAxis> axis) const { return axis.has_value() ? grid_[*axis] : 1; }

  std::string StageText(StoredPlace place) const {
    switch (place) {
      case StoredPlace::kFirstStage:
        return "pipeline=0";
      case StoredPlace::kLastStage:
        return absl::StrCat("pipeline=", grid_.pipeline() - 1);
      case StoredPlace::kLayer:
        break;
    }
    return absl::StrCat("pipeline={l}/", model_.layers / grid_.pipeline());
  }

  bool IsOnDiagonal(const StoredTensor& tensor) const {
    return vectors_ == VectorForm::kDiagonal && tensor.dimensions.size() == 1 &&
           tensor.dimensions.front().axis.has_value();
  }
  bool IsCutByZ(const StoredTensor& tensor) const {
    return tensor.is_matrix || IsOnDiagonal(tensor);
  }

  absl::Status CheckShards(const StoredTensor& tensor) const {
    int64_t elements = 1;
    for (const StoredDimension& dimension : tensor.dimensions) {
      elements *= dimension.length / SizeOf(dimension.axis);
    }
    if (!IsCutByZ(tensor) || elements % grid_.z() == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(tensor.pattern, ": z=", grid_.z(),
                                                   ": expected one that divides the ", elements,
                                                   " elements of a block"));
  }

  absl::StatusOr<std::string> LayoutText(const StoredTensor& tensor) {
    const StoredDimension& rows = tensor.dimensions.front();
    const bool cuts_parts = std::ranges::any_of(tensor.dimensions, [&](const StoredDimension& d) {
      return d.parts > 1 && SizeOf(d.axis) > 1;
    });
    const bool cuts_rows = IsCutByZ(tensor) && rows.length / SizeOf(rows.axis) % grid_.z() != 0;
    const bool is_part_of_face = IsOnDiagonal(tensor) && grid_.c() > 1;
    if (cuts_parts || cuts_rows || is_part_of_face) return TilesText(tensor);
    return AxesText(tensor);
  }

  std::string AxesText(const StoredTensor& tensor) const {
    AxisLayout layout;
    for (const StoredDimension& dimension : tensor.dimensions) {
      std::vector<std::string>& axes = layout.dimensions.emplace_back();
      if (SizeOf(dimension.axis) > 1) axes.emplace_back(GridAxisName(*dimension.axis));
    }
    if (IsCutByZ(tensor) && grid_.z() > 1) layout.dimensions.front().emplace_back("z");
    return ToString(Layout(std::move(layout)));
  }

  // For each slot of the devices that have the tensor.
  absl::StatusOr<std::string> TilesText(const StoredTensor& tensor) {
    std::vector<Grid> slots = {Grid{}};  // coordinates
    for (Grid& slot : slots) slot.sizes.values.fill(0);
    for (const GridAxis axis : MajorFirst()) {
      if (axis == GridAxis::kPipeline || (axis == GridAxis::kExpert && tensor.of_experts)) continue;
      std::vector<Grid> finer;
      for (const Grid& slot : slots) {
        for (int64_t i = 0; i < grid_[axis]; ++i) finer.emplace_back(slot)[axis] = i;
      }
      slots = std::move(finer);
      if (std::ssize(slots) > kBoxesMax) break;
    }
    ExplicitLayout layout;
    for (const Grid& slot : slots) {
      layout.slots.push_back(TileOf(tensor, slot));
      boxes_ += std::ssize(layout.slots.back());
      if (boxes_ <= kBoxesMax) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          tensor.pattern, ": expected at most ", kBoxesMax, " boxes in all rules; z=", grid_.z(),
          " does not divide the rows of a block"));
    }
    return ToString(Layout(std::move(layout)));
  }

  Tile TileOf(const StoredTensor& tensor, const Grid& slot) const {
    if (IsOnDiagonal(tensor) && slot.c() != slot.r()) return {};
    std::vector<Box> block = {Box()};
    for (const StoredDimension& dimension : tensor.dimensions) {
      std::vector<Box> cut;
      const int64_t parts = SizeOf(dimension.axis) > 1 ? dimension.parts : 1;
      const int64_t part = dimension.length / parts;
      const int64_t length = part / SizeOf(dimension.axis);
      const int64_t own = dimension.axis.has_value() ? slot[*dimension.axis] * length : 0;
      for (int64_t i = 0; i < parts; ++i) {
        for (const Box& box : block) {
          auto intervals = box.intervals();
          intervals.push_back({i * part + own, i * part + own + length});
          cut.emplace_back(std::move(intervals));
        }
      }
      block = std::move(cut);
    }
    if (!IsCutByZ(tensor)) return block;
    const int64_t share = Volume(block) / grid_.z();
    const Interval wanted{slot.z() * share, (slot.z() + 1) * share};
    Tile tile;
    int64_t before = 0;
    for (const Box& box : block) {
      const int64_t volume = box.volume();
      const Interval here = Intersect(wanted, {before, before + volume});
      if (!here.empty()) AppendElements(box, {here.begin - before, here.end - before}, tile);
      before += volume;
    }
    return tile;
  }

  const Transformer& model_;
  const Grid& grid_;
  const VectorForm vectors_;
  std::string text_;
  int64_t boxes_ = 0;
};

absl::Status CheckDivisions(const Transformer& model, const Grid& grid) {
  if (model.layers % grid.pipeline() != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pipeline=", grid.pipeline(), ": expected one that divides ", model.layers, " layers"));
  }
  if (std::max<int64_t>(model.experts, 1) % grid.expert() != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expert=", grid.expert(), ": expected one that divides ", model.experts, " experts"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view WeightFamilyName(WeightFamily family) {
  switch (family) {
    case WeightFamily::kLlama:
      return "llama";
    case WeightFamily::kGpt2:
      return "gpt2";
  }
  return "unknown";
}

absl::StatusOr<WeightFamily> ParseWeightFamily(absl::string_view name) {
  for (const WeightFamily family : {WeightFamily::kLlama, WeightFamily::kGpt2}) {
    if (name == WeightFamilyName(family)) return family;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("family of weights: expected llama or gpt2, found '", name, "'"));
}

absl::StatusOr<Mesh> WeightMesh(const Grid& grid, std::span<const DeviceId> devices) {
  std::vector<Axis> axes;
  for (const GridAxis axis : MajorFirst()) {
    if (grid[axis] > 1)
      axes.push_back({.name = std::string(GridAxisName(axis)), .size = grid[axis]});
  }
  return Mesh::Create(std::move(axes), {devices.begin(), devices.end()});
}

absl::StatusOr<std::string> RulesOfGrid(const Transformer& model, const Grid& grid,
                                        WeightFamily family, VectorForm vectors) {
  RETURN_IF_ERROR(Validate(model));
  RETURN_IF_ERROR(CheckDivisions(model, grid));
  if (vectors == VectorForm::kDiagonal) RETURN_IF_ERROR(CheckDiagonal(model, grid));
  RuleWriter writer(model, grid, vectors);
  for (const StoredTensor& tensor : StoredTensors(model, family)) {
    RETURN_IF_ERROR(writer.Write(tensor));
  }
  return std::move(writer).Finish();
}

}  // namespace crossmesh
