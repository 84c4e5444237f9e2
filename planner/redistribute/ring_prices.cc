#include "planner/redistribute/ring_prices.h"

#include <algorithm>
#include <utility>

namespace crossmesh {
namespace {

// How many devices of a host an atom tells apart.
int64_t SizeInside(const SubAxis& atom, std::span<const SubAxis> inside) {
  for (const SubAxis& part : inside) {
    if (part.axis != atom.axis) continue;
    const int64_t begin = std::max(atom.before, part.before);
    return std::max<int64_t>(1, atom.before * atom.size / begin);
  }
  return 1;
}

}  // namespace

RingPrices::RingPrices(const TypeSpace& space, RingCost cost)
    : space_(space), cost_(std::move(cost)) {
  for (const SubAxis& atom : space.atoms()) inside_.push_back(SizeInside(atom, cost_.inside));
}

double RingPrices::PassSeconds(int32_t atom) const {
  const bool leaves_hosts = inside_[atom] < space_.atoms()[atom].size;
  return cost_.seconds_per_pass + (leaves_hosts ? cost_.seconds_between_hosts : 0);
}

double RingPrices::Seconds(StepKind kind, std::span<const int32_t> atoms,
                           int64_t local_bytes) const {
  const bool gathers = kind == StepKind::kAllGather || kind == StepKind::kAllReduce;
  const bool reduces = kind == StepKind::kReduceScatter || kind == StepKind::kAllReduce;
  int64_t ranks = 1;
  int64_t inside = 1;
  for (const int32_t atom : atoms) {
    ranks *= space_.atoms()[atom].size;
    inside *= inside_[atom];
  }
  if (ranks == 1 || !(gathers || reduces)) return kNone;
  if (reduces && (!cost_.adds || ranks < cost_.summands_min)) return kNone;
  double rate = cost_.bytes_per_second_max;
  if (inside > 1) rate = std::min(rate, cost_.bytes_per_second_inside);
  double pass = cost_.seconds_per_pass;
  if (inside < ranks) {
    rate = std::min(rate, static_cast<double>(inside) * cost_.bytes_per_second_between_hosts);
    pass += cost_.seconds_between_hosts;
  }
  const auto piece = static_cast<double>(reduces ? (local_bytes + ranks - 1) / ranks : local_bytes);
  const double ring =
      cost_.seconds_per_step + static_cast<double>(ranks - 1) * (pass + piece / rate);
  const double hashed = static_cast<double>(ranks) * piece / cost_.hashed_bytes_per_second;
  return (gathers ? ring + hashed : 0) + (reduces ? ring : 0);
}

bool LieInOrder(const Shape& shape, std::span<const PieceCut> cuts) {
  const PieceCut* last = nullptr;  // the most minor that tells pieces apart
  int64_t pieces = 1;
  for (const PieceCut& cut : cuts) {
    if (!cut.is_piece) continue;
    pieces *= cut.size;
    const bool is_more_minor = last == nullptr || cut.dimension > last->dimension ||
                               (cut.dimension == last->dimension && cut.stride < last->stride);
    if (is_more_minor) last = &cut;
  }
  if (last == nullptr) return false;
  // Indices of the array that are as major as that one, and so many of them its cuts.
  int64_t indices = shape[last->dimension] / last->stride;
  for (int dimension = 0; dimension < last->dimension; ++dimension) indices *= shape[dimension];
  for (const PieceCut& cut : cuts) {
    const bool is_major = cut.dimension < last->dimension ||
                          (cut.dimension == last->dimension && cut.stride > last->stride);
    if (!cut.is_piece && is_major) indices /= cut.size;
  }
  return indices == pieces;
}

}  // namespace crossmesh
