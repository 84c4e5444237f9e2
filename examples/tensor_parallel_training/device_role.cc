#include "examples/tensor_parallel_training/device_role.h"

#include "common/base/check.h"
#include "common/mesh/box_elements.h"

#include <utility>

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
                  .grid = request.stages[stage].grid,
                  .form = request.training.activations,
                  .vectors = request.training.vectors,
                  .microbatches = request.microbatches,
                  .halves = request.training.overlaps.split_batch ? 2 : 1,
                  .cached_layers = request.training.cached_layers};
  for (size_t before = 0; before < stage; ++before) {
    role.stage.first += request.stages[before].layers;
  }
  const Mesh& mesh = *request.stages[stage].mesh;
  for (const GridAxis axis : kGridAxes) {
    const std::optional<int> found = mesh.FindAxis(GridAxisName(axis));
    if (found.has_value()) role.place[axis] = mesh.Coordinate(slot, *found);
  }
  return role;
}

std::vector<MatrixUse> UsesOf(const DeviceRole& role) {
  std::vector<MatrixUse> uses;
  const auto add = [&uses](const BlockMatrix& matrix, std::optional<int64_t> layer, bool is_kept) {
    MatrixUse use{.matrix = matrix, .key = MatrixKey(layer, matrix.name), .is_kept = is_kept};
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

Interval RowsOf(const DeviceRole& role, const PassId& pass,
                std::optional<GridAxis> scattered_over) {
  int64_t rows = role.settings.tokens() / role.microbatches;
  int64_t first = pass.microbatch * rows;
  const auto cut = [&](int64_t parts, int64_t part) {
    CHECK(rows % parts == 0) << rows << " rows over " << parts << " devices";
    rows /= parts;
    first += part * rows;
  };
  if (pass.half >= 0) cut(2, pass.half);
  cut(role.grid.data(), role.place[GridAxis::kData]);
  cut(role.grid.z(), role.place[GridAxis::kZ]);
  if (role.form == ActivationForm::kScattered && scattered_over.has_value()) {
    cut(role.grid[*scattered_over], role.place[*scattered_over]);
  }
  return {first, first + rows};
}

Tile TileOf(const DeviceRole& role, const Parameter& parameter) {
  const bool is_on_diagonal = IsOnDiagonal(role, parameter);
  if (is_on_diagonal && role.place[GridAxis::kC] != role.place[GridAxis::kR]) return {};
  const auto cut = [&role](std::optional<GridAxis> axis, int64_t length) {
    if (!axis.has_value()) return Interval{0, length};
    const int64_t part = length / role.grid[*axis];
    return Interval{role.place[*axis] * part, (role.place[*axis] + 1) * part};
  };
  const Interval rows = cut(parameter.row_axis, parameter.rows);
  const Interval columns = cut(parameter.column_axis, parameter.columns);
  if (!parameter.is_matrix && !is_on_diagonal) return {Box({rows, columns})};
  const int64_t elements = rows.length() * columns.length();
  Tile tile;
  AppendElements(Box({rows, columns}), cut(GridAxis::kZ, elements), tile);
  return tile;
}

Matrix CutParameter(const DeviceRole& role, const Parameter& parameter, const Matrix& whole) {
  const Tile tile = TileOf(role, parameter);
  Matrix stored = parameter.is_matrix || IsOnDiagonal(role, parameter)
                      ? Matrix(1, Volume(tile))
                      : Matrix(tile[0][0].length(), tile[0][1].length());
  VisitStored(role, parameter, [&](int64_t element, int64_t row, int64_t column) {
    stored.data()[element] = whole(row, column);
  });
  return stored;
}

}  // namespace crossmesh::grid_training
