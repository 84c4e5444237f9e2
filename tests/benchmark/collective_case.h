#pragma once

#include "common/mesh/device.h"
#include "common/plan/plan.h"
#include "planner/redistribute/planning/plan_redistribution.h"
#include "worker/executor/prepared_part.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace crossmesh {

inline constexpr std::array kCollectives = {"all_reduce", "all_gather", "reduce_scatter",
                                            "all_to_all"};

// A collective on one tensor of F32 over the devices a.0, a.1, ... of one host, each of which has a
// worker: planned by strategy redistribute, proven, and cut into the workers' parts. Ranks are
// those of the devices. Immutable.
class CollectiveCase {
 public:
  struct Options {
    int32_t devices = 4;
    // Of the larger of a rank's tiles: the array that all_reduce leaves, the one that all_gather
    // makes, the one that reduce_scatter takes; of all_to_all, of each of both.
    int64_t bytes = int64_t{256} << 20;
    // Of a rank's source tile in all_to_all, so what goes from rank to rank is in so many pieces.
    int64_t rows = 1;
    int64_t chunk_bytes = 0;  // as in ReshardRequest
    CourseSizes sizes = {};
  };

  // `name`: one of kCollectives. Aborts when anything goes wrong.
  CollectiveCase(const std::string& name, const Options& options);

  const TensorTable& tensors() const { return plan_.tensors(); }
  const std::shared_ptr<const PreparedPart>& part(int32_t rank) const { return parts_[rank]; }
  int64_t TileBytes(Side side, int32_t rank) const { return tensors().BytesOf(side, rank); }
  // What a rank sends and receives at least.
  int64_t least_bytes() const;

  // Small whole numbers, so that sums are exact in any order.
  void FillSource(int32_t rank, float* tile) const;
  int64_t WrongElements(int32_t rank, const float* tile) const;

 private:
  const std::string name_;
  const Options options_;
  const Plan plan_;
  std::vector<std::shared_ptr<const PreparedPart>> parts_;
};

}  // namespace crossmesh
