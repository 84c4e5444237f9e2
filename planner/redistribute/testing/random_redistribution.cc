#include "planner/redistribute/testing/random_redistribution.h"

#include "common/base/check.h"
#include "planner/redistribute/sub_axis.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

class Draw {
 public:
  Draw(uint64_t seed, const RandomRedistributionLimits& limits) : limits_(limits), random_(seed) {}

  RedistributionRequest Request() {
    RedistributionRequest request;
    DrawAxes(request);
    const int dimensions =
        limits_.exact_counts ? limits_.dimensions : 1 + Below(limits_.dimensions);
    const bool with_partial = limits_.partial && Below(3) == 0;
    const auto kind = static_cast<PartialReduction>(Below(4));
    DrawParts(request);
    DrawEnd(dimensions, with_partial ? &kind : nullptr, request.source);
    request.destination.dimensions.resize(dimensions);
    for (const SubAxis& part : parts_) Place(request, part);
    DrawShape(request);
    request.item_bytes = int64_t{1} << Below(4);
    return request;
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

  void DrawAxes(RedistributionRequest& request) {
    const int axes = limits_.exact_counts ? limits_.axes : 1 + Below(limits_.axes);
    int64_t devices = 1;
    for (int axis = 0; axis < axes; ++axis) {
      const std::vector<int64_t> sizes = {2, 2, 2, 3, 4, 4, 6, 8, 16};
      int64_t size = sizes[Below(static_cast<int>(sizes.size()))];
      while (devices * size > limits_.devices_max && size > 1) size = size > 2 ? size / 2 : 1;
      request.axes.push_back({absl::StrCat("a", axis), size});
      devices *= size;
    }
  }

  // Whole axes, or their two halves.
  void DrawParts(const RedistributionRequest& request) {
    for (size_t axis = 0; axis < request.axes.size(); ++axis) {
      const int64_t size = request.axes[axis].size;
      const auto number = static_cast<int32_t>(axis);
      const std::vector<int64_t> factors = PrimeFactors(size);
      if (limits_.parts && factors.size() > 1 && Below(3) == 0) {
        const int64_t before = factors[Below(static_cast<int>(factors.size()))];
        parts_.push_back({number, 1, before});
        parts_.push_back({number, before, size / before});
      } else if (size > 1) {
        parts_.push_back({number, 1, size});
      }
    }
    std::ranges::shuffle(parts_, random_);
  }

  void DrawEnd(int dimensions, const PartialReduction* kind, RedistributionEnd& end) {
    end.dimensions.resize(dimensions);
    for (const SubAxis& part : parts_) {
      const int place = Below(dimensions + 2);
      if (place < dimensions) {
        end.dimensions[place].push_back(part);
      } else if (place == dimensions && kind != nullptr) {
        end.partial.push_back({part, *kind});
      }
    }
  }

  // In the destination, where partial sums are kept only now and then.
  void Place(RedistributionRequest& request, const SubAxis& part) {
    const auto partial = std::ranges::find(request.source.partial, part, &PartialAxis::part);
    if (partial != request.source.partial.end() && Below(4) == 0) {
      request.destination.partial.push_back(*partial);
      return;
    }
    std::vector<std::vector<SubAxis>>& dimensions = request.destination.dimensions;
    const int place = Below(static_cast<int>(dimensions.size()) + 1);
    if (place == static_cast<int>(dimensions.size())) return;
    std::vector<SubAxis>& cuts = dimensions[place];
    cuts.insert(cuts.begin() + Below(static_cast<int>(cuts.size()) + 1), part);
  }

  void DrawShape(RedistributionRequest& request) {
    const std::vector<UnevenRule> rules = {UnevenRule::kChunk, UnevenRule::kNestedChunk,
                                           UnevenRule::kBalanced};
    const bool uneven = limits_.uneven && Below(4) == 0;
    if (uneven) {
      request.source.rule = rules[Below(static_cast<int>(rules.size()))];
      const bool other = Below(3) == 0;
      request.destination.rule =
          other ? rules[Below(static_cast<int>(rules.size()))] : request.source.rule;
    }
    std::vector<int64_t> lengths;
    int64_t elements = 1;
    for (size_t dimension = 0; dimension < request.source.dimensions.size(); ++dimension) {
      int64_t length = std::lcm(Parts(request.source.dimensions[dimension]),
                                Parts(request.destination.dimensions[dimension]));
      const int64_t longer = int64_t{1} << Below(3);
      if (elements * length * longer <= limits_.elements_max) length *= longer;
      if (uneven && Below(2) == 0) length = 1 + Below(static_cast<int>(2 * length));
      lengths.push_back(length);
      elements *= length;
    }
    const absl::StatusOr<Shape> shape = Shape::Create(lengths);
    CHECK_OK(shape);
    request.shape = *shape;
  }

  static int64_t Parts(const std::vector<SubAxis>& cuts) {
    int64_t parts = 1;
    for (const SubAxis& part : cuts) parts *= part.size;
    return parts;
  }

  const RandomRedistributionLimits& limits_;
  std::mt19937_64 random_;
  std::vector<SubAxis> parts_;
};

}  // namespace

RedistributionRequest RandomRedistribution(uint64_t seed,
                                           const RandomRedistributionLimits& limits) {
  return Draw(seed, limits).Request();
}

}  // namespace crossmesh
