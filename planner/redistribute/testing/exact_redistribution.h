// The least bytes and seconds of any sequence of steps, by trying all of them.

#pragma once

#include "planner/redistribute/collective_cost.h"
#include "planner/redistribute/local_type.h"
#include "planner/redistribute/step.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// All local types over which a tensor of one small mesh can lie without partial sums, contiguous
// and strided, and every step from one to another: what MakeStep allows, and nothing else of the
// search. Cost: types squared.
class ExactRedistribution {
 public:
  // `partial`: whether there are types with sums to be made.
  explicit ExactRedistribution(const TypeSpace& space, bool partial = false);

  // The least bytes from each type to `destination` when no local array on the way, the first one
  // apart, has more than `local_bytes_max`; -1: out of reach. In the order of types().
  std::vector<int64_t> LeastBytes(const LocalType& destination, int64_t local_bytes_max) const;
  // The least seconds from each type to `destination`, were all pieces in order that collectives of
  // NCCL want so; below 0: out of reach.
  std::vector<double> LeastSeconds(const LocalType& destination, const StepPrices& prices) const;
  const std::vector<LocalType>& types() const { return types_; }
  size_t IndexOf(const LocalType& type) const;

 private:
  struct Edge {
    int32_t from;
    StepKind kind;
    int64_t bytes;
    std::vector<int32_t> atoms;  // that change
  };

  void ListTypes(LocalType& type, int32_t atom);
  void ListEdges();
  template <typename Cost, typename CostOf>
  std::vector<Cost> Least(const LocalType& destination, int64_t local_bytes_max,
                          CostOf cost_of) const;

  const TypeSpace& space_;
  const bool partial_;
  std::vector<LocalType> types_;
  std::vector<std::vector<Edge>> edges_to_;  // of each type
};

}  // namespace crossmesh
