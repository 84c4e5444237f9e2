#include "planner/redistribute/testing/redistribution_study.h"

#include "common/base/check.h"
#include "planner/redistribute/sub_axis.h"

#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

// Puts each part from `next` on nowhere, at every place of every dimension, or among partial ones.
void AppendLayouts(const std::vector<SubAxis>& parts, size_t next, bool sums,
                   RedistributionEnd& end, std::vector<RedistributionEnd>& layouts) {
  if (next == parts.size()) {
    layouts.push_back(end);
    return;
  }
  AppendLayouts(parts, next + 1, sums, end, layouts);
  if (sums) {
    end.partial.push_back({parts[next]});
    AppendLayouts(parts, next + 1, sums, end, layouts);
    end.partial.pop_back();
  }
  for (std::vector<SubAxis>& dimension : end.dimensions) {
    for (size_t place = 0; place <= dimension.size(); ++place) {
      const auto at = static_cast<std::ptrdiff_t>(place);
      dimension.insert(dimension.begin() + at, parts[next]);
      AppendLayouts(parts, next + 1, sums, end, layouts);
      dimension.erase(dimension.begin() + at);
    }
  }
}

StudiedMesh Studied(std::vector<int64_t> sizes, int dimensions, bool sums = false) {
  StudiedMesh mesh;
  mesh.name = absl::StrCat(absl::StrJoin(sizes, "x"), ", ", dimensions, " dimensions");
  std::vector<SubAxis> parts;
  int64_t devices = 1;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    mesh.axes.push_back({absl::StrCat("a", axis), sizes[axis]});
    devices *= sizes[axis];
    int64_t before = 1;
    for (const int64_t prime : PrimeFactors(sizes[axis])) {
      parts.push_back({static_cast<int32_t>(axis), before, prime});
      before *= prime;
    }
  }
  const absl::StatusOr<Shape> shape = Shape::Create(std::vector<int64_t>(dimensions, devices));
  CHECK_OK(shape);
  mesh.shape = *shape;
  RedistributionEnd end;
  end.dimensions.resize(dimensions);
  AppendLayouts(parts, 0, sums, end, mesh.layouts);
  return mesh;
}

}  // namespace

RedistributionRequest StudiedMesh::Request(size_t source, size_t destination) const {
  return {
      .axes = axes, .shape = shape, .source = layouts[source], .destination = layouts[destination]};
}

std::vector<StudiedMesh> StudiedMeshesWithSums() {
  return {Studied({2, 2}, 2, true), Studied({2, 3}, 2, true), Studied({2, 2, 2}, 2, true)};
}

std::vector<StudiedMesh> StudiedMeshes() {
  return {Studied({2, 2}, 2), Studied({2, 3}, 2),    Studied({2, 2}, 3),
          Studied({4, 2}, 2), Studied({2, 2, 2}, 2), Studied({2, 2, 3}, 2)};
}

}  // namespace crossmesh
