#include "examples/tensor_parallel_training/testing/carried_tensor.h"

#include "common/base/check.h"
#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "common/mesh/shape.h"
#include "common/plan/course.h"
#include "common/plan/tensor_table.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh::grid_training {
namespace {

constexpr float kUnwritten = std::numeric_limits<float>::quiet_NaN();

// Calls visit(index in the whole, index in the tile, length) for each run of elements that are next
// to each other in both.
template <typename Visit>
void VisitRuns(const Tile& tile, const Shape& shape, Visit visit) {
  int64_t place = 0;
  for (const Box& box : tile) {
    const int64_t length = box[box.rank() - 1].length();
    for (int64_t run = 0; run < box.volume() / length; ++run) {
      int64_t rest = run;
      int64_t whole = box[box.rank() - 1].begin;
      int64_t stride = shape[shape.rank() - 1];
      for (int dimension = shape.rank() - 1; dimension-- > 0;) {
        whole += (box[dimension].begin + rest % box[dimension].length()) * stride;
        rest /= box[dimension].length();
        stride *= shape[dimension];
      }
      visit(whole, place, length);
      place += length;
    }
  }
}

// Which summand a slot has.
int64_t SummandOf(const Mesh& mesh, const LayerProgram::Transfer& transfer, int64_t slot) {
  int64_t summand = 0;
  for (const std::string& name : transfer.partial) {
    const std::optional<int> axis = mesh.FindAxis(name);
    CHECK(axis.has_value()) << name;
    summand = summand * mesh.axes()[*axis].size + mesh.Coordinate(slot, *axis);
  }
  return summand;
}

// Where the tiles of a tensor lie.
struct TensorSide {
  const Mesh& mesh;
  const Layout& layout;
  const Shape& shape;
};
using Tiles = std::vector<std::vector<std::byte>>;  // by slot
using Summands = std::map<int64_t, std::vector<float>>;

absl::StatusOr<Summands> PutTogether(const TensorSide& side,
                                     std::span<const Tiles::value_type> given,
                                     absl::FunctionRef<int64_t(int64_t)> summand_of) {
  const std::vector<Tile> tiles = side.layout.Tiles(side.mesh, side.shape);
  Summands summands;
  std::optional<int64_t> differs;
  for (int64_t slot = 0; slot < side.mesh.slots(); ++slot) {
    std::vector<float>& whole = summands[summand_of(slot)];
    whole.resize(side.shape.elements(), kUnwritten);
    VisitRuns(tiles[slot], side.shape, [&](int64_t element, int64_t place, int64_t length) {
      const std::byte* values = given[slot].data() + place * sizeof(float);
      const bool is_first = std::isnan(whole[element]);
      if (!is_first && std::memcmp(&whole[element], values, length * sizeof(float)) != 0) {
        differs = slot;
      }
      std::memcpy(&whole[element], values, length * sizeof(float));
    });
    if (differs.has_value()) {
      return absl::InternalError(absl::StrCat("expected copies that are the same, found slot ",
                                              *differs, " of ", ToString(side.mesh), " to differ"));
    }
  }
  for (const auto& [summand, whole] : summands) {
    if (std::ranges::none_of(whole, [](float value) { return std::isnan(value); })) continue;
    return absl::InternalError(
        absl::StrCat("expected all elements of summand ", summand, ", found some missing"));
  }
  return summands;
}

Tiles Cut(const TensorSide& side, const std::vector<float>& whole) {
  Tiles cut;
  for (const Tile& tile : side.layout.Tiles(side.mesh, side.shape)) {
    std::vector<std::byte>& bytes = cut.emplace_back(Volume(tile) * sizeof(float));
    VisitRuns(tile, side.shape, [&](int64_t element, int64_t place, int64_t length) {
      std::memcpy(bytes.data() + place * sizeof(float), &whole[element], length * sizeof(float));
    });
  }
  return cut;
}

float Reduced(ReductionKind kind, float before, float summand) {
  CHECK(kind != ReductionKind::kMin) << "a minimum of a training";
  return kind == ReductionKind::kMax ? std::max(before, summand) : before + summand;
}

// One after the other in `bytes`, as many as `count`.
std::vector<std::byte> Reduce(ReductionKind kind, int64_t count,
                              const std::vector<std::byte>& bytes) {
  std::vector<std::byte> reduced(bytes.begin(), bytes.begin() + std::ssize(bytes) / count);
  for (int64_t summand = 1; summand < count; ++summand) {
    for (size_t place = 0; place < reduced.size(); place += sizeof(float)) {
      float before = 0, next = 0;
      std::memcpy(&before, &reduced[place], sizeof(float));
      std::memcpy(&next, &bytes[summand * reduced.size() + place], sizeof(float));
      before = Reduced(kind, before, next);
      std::memcpy(&reduced[place], &before, sizeof(float));
    }
  }
  return reduced;
}

TensorSide SideOf(const TensorTable& table, Side side) {
  const Placement& placement = table.PlacementOf(side, 0);
  return {placement.mesh, placement.layout, table.groups()[0].shape};
}

// Those that a destination tile has all of: its first dimensions number them.
int64_t SummandsOf(const TensorTable& table, const Tile& tile) {
  int64_t count = 1;
  for (int dimension = 0; dimension < table.groups()[0].slab.summand_dimensions; ++dimension) {
    CHECK(tile.size() == 1) << tile.size() << " boxes of summands";
    const bool has_all = tile[0][dimension].length() == table.groups()[0].shape[dimension];
    CHECK(has_all || tile[0][dimension].length() == 1) << ToString(tile[0]);
    if (has_all) count *= tile[0][dimension].length();
  }
  return count;
}

}  // namespace

absl::StatusOr<Tiles> CarryTensor(const LayerProgram& program,
                                  const LayerProgram::Transfer& transfer,
                                  std::span<const Tiles::value_type> given) {
  CHECK(transfer.tensors.size() == 1 && transfer.tensors[0].tensor.type == DataType::kF32)
      << transfer.name;
  const LayerProgram::Tensor& tensor = transfer.tensors.front();
  const Mesh& source = *program.ranks[program.from(transfer)].mesh;
  const absl::StatusOr<Summands> summands =
      PutTogether({source, tensor.source, tensor.tensor.shape}, given,
                  [&](int64_t slot) { return SummandOf(source, transfer, slot); });
  if (!summands.ok()) return summands.status();
  std::vector<float> whole = summands->begin()->second;
  for (auto summand = std::next(summands->begin()); summand != summands->end(); ++summand) {
    for (size_t i = 0; i < whole.size(); ++i) {
      whole[i] = Reduced(transfer.reduction, whole[i], summand->second[i]);
    }
  }
  return Cut({*program.ranks[program.to(transfer)].mesh, tensor.destination, tensor.tensor.shape},
             whole);
}

absl::StatusOr<Tiles> CarryByPlan(const LayerProgram& program,
                                  const LayerProgram::Transfer& transfer, const Plan& plan,
                                  Tiles given) {
  if (!plan.has_courses()) return CarryTensor(program, transfer, given);
  CHECK(plan.courses().size() == 1 && plan.courses()[0].instances == 1) << transfer.name;
  for (const Course<Plan>::Step& step : plan.courses()[0].steps) {
    const TensorTable& table = step.move->tensors();
    CHECK(table.groups().size() == 1 && table.groups()[0].slab.slabs == 1) << transfer.name;
    const TensorSide source = SideOf(table, Side::kSource);
    const TensorSide destination = SideOf(table, Side::kDestination);
    CHECK(source.mesh.devices() == destination.mesh.devices()) << transfer.name;
    const absl::StatusOr<Summands> whole =
        PutTogether(source, given, [](int64_t) { return int64_t{0}; });
    if (!whole.ok()) return whole.status();
    given = Cut(destination, whole->at(0));
    if (!step.reduction.has_value()) continue;
    const std::vector<Tile> tiles = destination.layout.Tiles(destination.mesh, destination.shape);
    for (size_t slot = 0; slot < given.size(); ++slot) {
      given[slot] = Reduce(step.reduction->kind, SummandsOf(table, tiles[slot]), given[slot]);
    }
  }
  return given;
}

}  // namespace crossmesh::grid_training
