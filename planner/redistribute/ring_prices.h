#pragma once

#include "planner/redistribute/local_type.h"
#include "planner/redistribute/step.h"
#include "planner/redistribute/sub_axis.h"

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace crossmesh {

// What NCCL's collectives of groups cost between GPUs. Each is a ring over all of a group, straight
// between local arrays, that leaves a host by the NICs of all its GPUs there.
struct RingCost {
  std::vector<SubAxis> inside;                // the parts of axes that do not leave a host
  double seconds_per_step = 0;                // with its call
  double seconds_per_pass = 0;                // of a rank, until it hands a piece on
  double seconds_between_hosts = 0;           // more of a pass that leaves a host
  double bytes_per_second_max = 1;            // of a kernel's channels
  double bytes_per_second_inside = 1;         // of a GPU's links
  double bytes_per_second_between_hosts = 1;  // of a GPU's part of its NIC
  double hashed_bytes_per_second = 1;
  bool adds = false;         // whether sums may be NCCL's
  int64_t summands_min = 0;  // of a group that reduces: of a mean all that there are
};

// Prices steps of one space as collectives of NCCL. Immutable.
class RingPrices {
 public:
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  RingPrices(const TypeSpace& space, RingCost cost);

  // Seconds of a step whose pieces lie one after the other in local arrays (LieInOrder), of
  // `local_bytes` before; kNone where it is no collective of NCCL, or may be none. As PredictRing
  // has it for one tensor. An all-reduce is that to parts, and a gather of these.
  double Seconds(StepKind kind, std::span<const int32_t> atoms, int64_t local_bytes) const;
  // The least of a pass along that atom or others.
  double PassSeconds(int32_t atom) const;

 private:
  const TypeSpace& space_;
  const RingCost cost_;
  std::vector<int64_t> inside_;  // of atoms, how many devices of their hosts they tell apart
};

// A cut of a local array, or a piece of one.
struct PieceCut {
  int dimension = 0;
  int64_t stride = 1;
  int64_t size = 1;
  bool is_piece = false;  // that tells pieces apart; else it cuts the array
};

// Whether pieces, of which there are some, lie one after the other in an array's memory, each in
// one piece: whether they are told apart by the most major indices that the array has. Cost: the
// cuts.
bool LieInOrder(const Shape& shape, std::span<const PieceCut> cuts);

}  // namespace crossmesh
