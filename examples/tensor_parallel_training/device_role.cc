#include "examples/tensor_parallel_training/device_role.h"

#include "common/base/check.h"
#include "common/mesh/box_elements.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh::grid_training {

DeviceRole RoleOf(const GridProgramRequest& request, const Optimizer& optimizer, size_t stage,
                  int64_t slot) {
  DeviceRole role{.settings = {.model = request.model,
                               .batch = request.training.batch,
                               .sequence = request.training.sequence,
                               .optimizer = optimizer},
                  .stage = {.count = request.stages[stage].layers,
                            .is_first = stage == 0,
                            .is_last = stage + 1 == request.stages.size()},
                  .form = request.training.activations,
                  .vectors = request.training.vectors,
                  .microbatches = request.microbatches,
                  .halves = request.training.overlaps.split_batch ? 2 : 1,
                  .cached_layers = request.training.cached_layers};
  for (size_t before = 0; before < stage; ++before) {
    role.stage.first += request.stages[before].layers;
  }
  absl::StatusOr<PartsOnGrids> parts = PartsOfStage(request.stages, stage);
  CHECK_OK(parts.status());
  role.grid_of = std::move(parts->grid_of);
  for (const Grid& grid : parts->grids) {
    GridPlace& on = role.grids.emplace_back(GridPlace{.grid = grid});
    if (parts->grids.size() > 1) on.prefix = absl::StrCat("grid", role.grids.size() - 1, ".");
    const PerAxis<int64_t> inner = InnerSizes(grid, kGridOrder);
    for (const GridAxis axis : kGridAxes) on.place[axis] = slot / inner[axis] % grid[axis];
  }
  return role;
}

std::vector<MatrixUse> UsesOf(const DeviceRole& role) {
  std::vector<MatrixUse> uses;
  const auto add = [&](const BlockMatrix& matrix, std::optional<int64_t> layer, bool is_kept) {
    MatrixUse use{.matrix = matrix,
                  .key = MatrixKey(layer, matrix.name),
                  .is_kept = is_kept,
                  .part = uses.size() / kPartMatrices};
    use.is_joint = !uses.empty() && role.GridOf(use.part) != role.GridOf(uses.back().part);
    if (matrix.transposed) std::swap(use.summed, use.columns);
    uses.push_back(std::move(use));
  };
  const Transformer& model = role.settings.model;
  for (int64_t layer = 0; layer < role.stage.count; ++layer) {
    for (const BlockMatrix& matrix : MatricesOf(model)) {
      // The last ones, which are needed again first.
      add(matrix, role.stage.first + layer, role.stage.count - layer <= role.cached_layers);
    }
  }
  if (role.stage.is_last) {
    add({.name = "logits", .k = model.hidden, .n = model.vocabulary}, std::nullopt,
        role.cached_layers > 0);
  }
  return uses;
}

Interval RowsOf(const DeviceRole& role, const GridPlace& on, const PassId& pass,
                std::optional<GridAxis> scattered_over) {
  int64_t rows = role.settings.tokens() / role.microbatches;
  int64_t first = pass.microbatch * rows;
  const auto cut = [&](int64_t parts, int64_t part) {
    CHECK(rows % parts == 0) << rows << " rows over " << parts << " devices";
    rows /= parts;
    first += part * rows;
  };
  if (pass.half >= 0) cut(2, pass.half);
  cut(on.grid.data(), on.place[GridAxis::kData]);
  cut(on.grid.z(), on.place[GridAxis::kZ]);
  if (role.form == ActivationForm::kScattered && scattered_over.has_value()) {
    cut(on.grid[*scattered_over], on.place[*scattered_over]);
  }
  return {first, first + rows};
}

Tile TileOf(const DeviceRole& role, const Parameter& parameter) {
  const GridPlace& on = role.OnPart(parameter.part);
  const bool is_on_diagonal = IsOnDiagonal(role, parameter);
  if (is_on_diagonal && on.place[GridAxis::kC] != on.place[GridAxis::kR]) return {};
  const auto cut = [&on](std::optional<GridAxis> axis, int64_t length) {
    if (!axis.has_value()) return Interval{0, length};
    const int64_t part = length / on.grid[*axis];
    return Interval{on.place[*axis] * part, (on.place[*axis] + 1) * part};
  };
  const Interval rows = cut(parameter.row_axis, parameter.rows);
  const Interval columns = cut(parameter.column_axis, parameter.columns);
  if (!parameter.is_matrix && !is_on_diagonal) return {Box({rows, columns})};
  const int64_t elements = rows.length() * columns.length();
  Tile tile;
  AppendElements(Box({rows, columns}), cut(GridAxis::kZ, elements), tile);
  return tile;
}

Matrix RoomFor(const DeviceRole& role, const Parameter& parameter) {
  const Tile tile = TileOf(role, parameter);
  return parameter.is_matrix || IsOnDiagonal(role, parameter)
             ? Matrix(1, Volume(tile))
             : Matrix(tile[0][0].length(), tile[0][1].length());
}

Matrix CutParameter(const DeviceRole& role, const Parameter& parameter, const Matrix& whole) {
  Matrix stored = RoomFor(role, parameter);
  VisitStored(role, parameter, [&](int64_t element, int64_t row, int64_t column) {
    stored.data()[element] = whole(row, column);
  });
  return stored;
}

}  // namespace crossmesh::grid_training
