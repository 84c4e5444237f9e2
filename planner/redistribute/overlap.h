#pragma once

#include "planner/redistribute/local_type.h"

#include <cstdint>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/functional/function_ref.h>

namespace crossmesh {

// How many elements devices have in common before and after a change of type, counted on the
// indices themselves. Thread-compatible; refers to the space and both types.
class Overlap {
 public:
  Overlap(const TypeSpace& space, const LocalType& before, const LocalType& after);

  // Elements that `holder` has before and `receiver` is to have afterwards. Cost: the dimensions,
  // and once for each pair of parts of a dimension its intervals.
  int64_t Elements(int64_t holder, int64_t receiver);
  // The same of one dimension's indices, by the parts of it that they have.
  int64_t Common(int dimension, int64_t before, int64_t after);
  // Elements of a device afterwards; 0 where a rule leaves it nothing.
  int64_t ElementsAfter(int64_t device);

 private:
  // Counts that are made once. The last one is at hand: devices one after another have mostly the
  // same part of a dimension.
  class Memo {
   public:
    int64_t Of(int64_t key, absl::FunctionRef<int64_t()> count);

   private:
    absl::flat_hash_map<int64_t, int64_t> known_;
    int64_t last_key_ = -1;
    int64_t last_ = 0;
  };
  int64_t CountCommon(int dimension, int64_t before, int64_t after) const;
  int64_t LengthAfter(int dimension, int64_t part);
  int64_t CountLength(int dimension, int64_t part) const;

  const TypeSpace& space_;
  const LocalType& before_;
  const LocalType& after_;
  std::vector<int64_t> parts_after_;  // of each dimension
  std::vector<Memo> seen_;            // [dimension], by pairs of parts
  std::vector<Memo> lengths_;         // [dimension], by parts afterwards
};

// The device that misses most, and how many elements: no plan can have it receive less. Where a sum
// is still to be made, a device has none of the result, so it misses all of it.
struct NeediestDevice {
  int64_t device = 0;
  int64_t missing_elements = 0;
};
// Cost: devices times dimensions.
NeediestDevice FindNeediestDevice(const TypeSpace& space, const LocalType& before,
                                  const LocalType& after);

}  // namespace crossmesh
