#include "planner/parallelism/programs/grid_transfers.h"

#include "common/base/check.h"
#include "common/mesh/shape.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// What moves between stages has memory for so many messages.
constexpr int32_t kStageBuffers = 2;

// Sizes that the rules of grids allow make a shape.
TensorSpec Tensor(std::string name, DataType type, std::vector<int64_t> lengths) {
  absl::StatusOr<Shape> shape = Shape::Create(lengths);
  CHECK_OK(shape.status());
  return {.name = std::move(name), .type = type, .shape = *std::move(shape)};
}

Layout Cut(std::vector<std::vector<std::string>> dimensions) {
  return Layout(AxisLayout{.dimensions = std::move(dimensions)});
}

// Axes of which the first is the major one.
std::vector<std::string> Joined(std::vector<std::string> axes,
                                const std::vector<std::string>& minor) {
  axes.insert(axes.end(), minor.begin(), minor.end());
  return axes;
}

GridAxis OtherFace(GridAxis axis) { return axis == GridAxis::kC ? GridAxis::kR : GridAxis::kC; }

}  // namespace

GridTransfers::Sides GridTransfers::SidesOf(const BlockMatrix& matrix) {
  Sides sides;
  if (matrix.transposed) std::swap(sides.summed, sides.columns);
  return sides;
}

std::vector<std::string> GridTransfers::RowAxes(std::optional<GridAxis> scattered_over) const {
  std::vector<std::string> axes = Joined(On(GridAxis::kData), On(GridAxis::kZ));
  if (sizes_.scattered && scattered_over.has_value()) axes = Joined(axes, On(*scattered_over));
  return axes;
}

Layout GridTransfers::Activations(std::optional<GridAxis> scattered_over, GridAxis features) const {
  return Cut({RowAxes(scattered_over), On(features)});
}

GridTransfers::Transfer GridTransfers::Of(absl::string_view name,
                                          std::vector<LayerProgram::Tensor> tensors,
                                          const std::vector<GridAxis>& partial,
                                          int32_t buffers) const {
  LayerProgram::Transfer transfer{.name = absl::StrCat(sizes_.stage, sizes_.part, name),
                                  .tensors = std::move(tensors),
                                  .buffers = buffers};
  for (const GridAxis axis : partial) {
    if (IsCut(axis)) transfer.partial = Joined(std::move(transfer.partial), On(axis));
  }
  return transfer;
}

GridTransfers::BlockTensor GridTransfers::BlocksOf(const BlockMatrix& matrix, DataType type,
                                                   bool of_each_copy) const {
  const auto [summed, columns] = SidesOf(matrix);
  const int64_t blocks = sizes_.grid[summed] * sizes_.grid[columns];
  std::vector<std::string> rows = On(summed);
  int64_t row_blocks = sizes_.grid[summed];
  if (of_each_copy) {
    rows = Joined(On(GridAxis::kData), rows);
    row_blocks *= sizes_.grid.data();
  }
  return {.tensor = Tensor(std::string(matrix.name), type,
                           {row_blocks, sizes_.grid[columns], matrix.k * matrix.n / blocks}),
          .whole = Cut({rows, On(columns), {}}),
          .shards = Cut({rows, On(columns), On(GridAxis::kZ)})};
}

GridTransfers::Transfer GridTransfers::GatherOf(const BlockMatrix& matrix,
                                                absl::string_view what) const {
  if (!IsCut(GridAxis::kZ)) return std::nullopt;
  const BlockTensor blocks = BlocksOf(matrix, sizes_.type, /*of_each_copy=*/false);
  return Of(absl::StrCat(matrix.name, ".", what),
            {{.tensor = blocks.tensor, .source = blocks.shards, .destination = blocks.whole}}, {},
            1);
}

GridTransfers::Transfer GridTransfers::Gather(const BlockMatrix& matrix) const {
  return GatherOf(matrix, "gather");
}

GridTransfers::Transfer GridTransfers::BackwardGather(const BlockMatrix& matrix) const {
  return GatherOf(matrix, "backward_gather");
}

GridTransfers::Transfer GridTransfers::Scatter(const BlockMatrix& matrix) const {
  if (!IsCut(GridAxis::kZ)) return std::nullopt;
  // Copies have the same weights, but before their sum gradients of their own.
  const BlockTensor blocks = BlocksOf(matrix, sizes_.type, /*of_each_copy=*/true);
  return Of(absl::StrCat(matrix.name, ".scatter"),
            {{.tensor = blocks.tensor, .source = blocks.whole, .destination = blocks.shards}},
            {GridAxis::kZ}, sizes_.scatter_buffers);
}

GridTransfers::Transfer GridTransfers::DataSum(const BlockMatrix& matrix) const {
  if (!IsCut(GridAxis::kData)) return std::nullopt;
  const BlockTensor blocks = BlocksOf(matrix, DataType::kF32, /*of_each_copy=*/false);
  return Of(absl::StrCat(matrix.name, ".data_sum"),
            {{.tensor = blocks.tensor, .source = blocks.shards, .destination = blocks.shards}},
            {GridAxis::kData}, 1);
}

GridTransfers::Transfer GridTransfers::Rows(const BlockMatrix& matrix) const {
  const auto [summed, columns] = SidesOf(matrix);
  if (!sizes_.scattered || !IsCut(columns)) return std::nullopt;
  return Of(absl::StrCat(matrix.name, ".rows"),
            {{.tensor = Tensor("input", sizes_.type, {sizes_.rows, matrix.k}),
              .source = Activations(columns, summed),
              .destination = Activations(std::nullopt, summed)}},
            {}, sizes_.halves);
}

GridTransfers::Transfer GridTransfers::Sum(const BlockMatrix& matrix) const {
  const auto [summed, columns] = SidesOf(matrix);
  if (!IsCut(summed)) return std::nullopt;
  return Of(absl::StrCat(matrix.name, ".sum"),
            {{.tensor = Tensor("output", sizes_.type, {sizes_.rows, matrix.n}),
              .source = Activations(std::nullopt, columns),
              .destination = Activations(summed, columns)}},
            {summed}, sizes_.halves);
}

GridTransfers::Transfer GridTransfers::GradientRows(const BlockMatrix& matrix) const {
  const auto [summed, columns] = SidesOf(matrix);
  if (!sizes_.scattered || !IsCut(summed)) return std::nullopt;
  return Of(absl::StrCat(matrix.name, ".gradient_rows"),
            {{.tensor = Tensor("output_gradient", sizes_.type, {sizes_.rows, matrix.n}),
              .source = Activations(summed, columns),
              .destination = Activations(std::nullopt, columns)}},
            {}, sizes_.halves);
}

GridTransfers::Transfer GridTransfers::GradientSum(const BlockMatrix& matrix) const {
  const auto [summed, columns] = SidesOf(matrix);
  if (!IsCut(columns)) return std::nullopt;
  return Of(absl::StrCat(matrix.name, ".gradient_sum"),
            {{.tensor = Tensor("input_gradient", sizes_.type, {sizes_.rows, matrix.k}),
              .source = Activations(std::nullopt, summed),
              .destination = Activations(columns, summed)}},
            {columns}, sizes_.halves);
}

GridTransfers::Transfer GridTransfers::RowSums(absl::string_view name, int64_t numbers,
                                               const Sides& sides, ReductionKind kind) const {
  if (!IsCut(sides.summed)) return std::nullopt;
  const Layout rows = Cut({RowAxes(sides.columns), {}});
  Transfer transfer = Of(name,
                         {{.tensor = Tensor("sums", DataType::kF32, {sizes_.rows, numbers}),
                           .source = rows,
                           .destination = rows}},
                         {sides.summed}, sizes_.halves);
  transfer->reduction = kind;
  return transfer;
}

GridTransfers::Transfer GridTransfers::NormSum(const BlockMatrix& matrix) const {
  return RowSums(absl::StrCat(matrix.name, ".norm_sum"), 2, SidesOf(matrix), ReductionKind::kSum);
}

GridTransfers::Transfer GridTransfers::NormGradientSum(const BlockMatrix& matrix) const {
  return RowSums(absl::StrCat(matrix.name, ".norm_gradient_sum"), 2, SidesOf(matrix),
                 ReductionKind::kSum);
}

// Logits are of a normal layer: r cuts their columns, and c the rows of scattered ones.
GridTransfers::Transfer GridTransfers::LossMax() const {
  return RowSums("loss.max", 1, {.summed = GridAxis::kR, .columns = GridAxis::kC},
                 ReductionKind::kMax);
}

GridTransfers::Transfer GridTransfers::LossSum() const {
  return RowSums("loss.sum", 2, {.summed = GridAxis::kR, .columns = GridAxis::kC},
                 ReductionKind::kSum);
}

GridTransfers::Transfer GridTransfers::Vectors(GridAxis axis, int64_t elements) const {
  std::vector<GridAxis> partial = {GridAxis::kData, GridAxis::kZ};
  if (sizes_.scattered) partial.push_back(OtherFace(axis));
  Transfer transfer = Of(absl::StrCat("vectors_of_", GridAxisName(axis)),
                         {{.tensor = Tensor("gradients", DataType::kF32, {elements}),
                           .source = Cut({On(axis)}),
                           .destination = Cut({On(axis)})}},
                         partial, 1);
  if (elements == 0 || transfer->partial.empty()) return std::nullopt;
  return transfer;
}

Layout GridTransfers::Diagonal(GridAxis axis, int64_t elements,
                               std::optional<int64_t> summands) const {
  const Grid& grid = sizes_.grid;
  const int64_t part = elements / (grid[axis] * grid.z());
  ExplicitLayout layout;
  // In the order of the mesh: data, z, r, c.
  for (int64_t copy = 0; copy < grid.data(); ++copy) {
    for (int64_t z = 0; z < grid.z(); ++z) {
      for (int64_t face = 0; face < grid.r() * grid.c(); ++face) {
        Tile& tile = layout.slots.emplace_back();
        const int64_t place = face % grid.c();
        if (place != face / grid.c()) continue;
        const int64_t first = (place * grid.z() + z) * part;
        const Interval own{first, first + part};
        tile.push_back(summands.has_value() ? Box({Interval{0, *summands}, own}) : Box({own}));
      }
    }
  }
  return Layout(std::move(layout));
}

GridTransfers::Transfer GridTransfers::SpreadVectors(GridAxis axis, int64_t elements) const {
  if (elements == 0 || !(IsCut(axis) || IsCut(GridAxis::kZ))) return std::nullopt;
  return Of(absl::StrCat("vectors_of_", GridAxisName(axis), ".spread"),
            {{.tensor = Tensor("vectors", sizes_.type, {elements}),
              .source = Diagonal(axis, elements, std::nullopt),
              .destination = Cut({On(axis)})}},
            {}, 1);
}

GridTransfers::Transfer GridTransfers::ScatterVectors(GridAxis axis, int64_t elements) const {
  const GridAxis other = OtherFace(axis);
  Transfer transfer =
      Of(absl::StrCat("vectors_of_", GridAxisName(axis), ".scatter"),
         {{.tensor = Tensor("gradients", DataType::kF32, {sizes_.grid[other], elements}),
           .source = Cut({On(other), On(axis)}),
           .destination = Cut({On(other), Joined(On(axis), On(GridAxis::kZ))})}},
         {GridAxis::kData, GridAxis::kZ}, 1);
  if (elements == 0 || transfer->partial.empty()) return std::nullopt;
  return transfer;
}

GridTransfers::Transfer GridTransfers::ReduceVectors(GridAxis axis, int64_t elements) const {
  const GridAxis other = OtherFace(axis);
  const int64_t summands = sizes_.grid[other];
  if (elements == 0 || !IsCut(other)) return std::nullopt;
  return Of(absl::StrCat("vectors_of_", GridAxisName(axis), ".reduce"),
            {{.tensor = Tensor("gradients", DataType::kF32, {summands, elements}),
              .source = Cut({On(other), Joined(On(axis), On(GridAxis::kZ))}),
              .destination = Diagonal(axis, elements, summands)}},
            {}, 1);
}

GridTransfers::Transfer GridTransfers::Joining(absl::string_view what,
                                               const GridTransfers& to) const {
  if (BetweenBlocks() == to.BetweenBlocks()) return std::nullopt;
  return Of(absl::StrCat(to.sizes_.part, what),
            {{.tensor = Tensor(std::string(what), sizes_.type, {sizes_.rows, sizes_.hidden}),
              .source = BetweenBlocks(),
              .destination = to.BetweenBlocks()}},
            {}, sizes_.halves);
}

LayerProgram::Transfer GridTransfers::Leaving(absl::string_view what,
                                              const GridTransfers& to) const {
  return {
      .name = absl::StrCat(sizes_.stage, what),
      .tensors = {{.tensor = Tensor(std::string(what), sizes_.type, {sizes_.rows, sizes_.hidden}),
                   .source = BetweenBlocks(),
                   .destination = to.BetweenBlocks()}},
      .buffers = kStageBuffers * sizes_.halves};
}

}  // namespace crossmesh
