#pragma once

#include "common/base/check.h"
#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "common/mesh/shape.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {

// Random values for the property tests of this module, reproducible from a seed.
class RandomValues {
 public:
  explicit RandomValues(uint64_t seed) : engine_(seed) {}

  // first to last, inclusive.
  int64_t Between(int64_t first, int64_t last) {
    return first + static_cast<int64_t>(engine_() % static_cast<uint64_t>(last - first + 1));
  }

  Mesh RandomMesh() {
    static const std::vector<std::string> names = {"data", "on", "tensor_2", "x"};
    std::vector<Axis> axes;
    int64_t slots = 1;
    for (int64_t i = Between(0, 4); i > 0; --i) {
      axes.push_back({.name = names[i - 1], .size = Between(1, 4)});
      slots *= axes.back().size;
    }
    std::vector<DeviceId> devices;
    for (int64_t slot = 0; slot < slots; ++slot) {
      devices.push_back({.host = absl::StrCat("node-", slot / 5, Between(0, 1) == 0 ? ".lan" : ""),
                         .index = static_cast<int32_t>(slot)});
    }
    absl::StatusOr<Mesh> mesh = Mesh::Create(std::move(axes), std::move(devices));
    CHECK_OK(mesh);
    return *std::move(mesh);
  }

  Shape RandomShape(int64_t rank_max, int64_t length_max) {
    std::vector<int64_t> lengths(Between(0, rank_max));
    for (int64_t& length : lengths) length = Between(0, length_max);
    absl::StatusOr<Shape> shape = Shape::Create(lengths);
    CHECK_OK(shape);
    return *std::move(shape);
  }

  // Each axis of the mesh cuts some dimension or replicates; the rule is not kExact.
  Layout RandomAxisLayout(const Mesh& mesh, const Shape& shape) {
    AxisLayout layout;
    layout.dimensions.resize(shape.rank());
    layout.rule = static_cast<UnevenRule>(Between(1, 3));
    for (const Axis& axis : mesh.axes()) {
      const int64_t dimension = Between(0, shape.rank());
      if (dimension == shape.rank()) continue;
      std::vector<std::string>& axes = layout.dimensions[dimension];
      axes.insert(axes.begin() + Between(0, static_cast<int64_t>(axes.size())), axis.name);
    }
    return Layout(std::move(layout));
  }

  Box RandomBox(const Shape& shape) {
    absl::InlinedVector<Interval, 4> intervals;
    for (const int64_t length : shape.lengths()) {
      const int64_t begin = Between(0, length);
      intervals.push_back({begin, Between(begin, length)});
    }
    return Box(std::move(intervals));
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace crossmesh
