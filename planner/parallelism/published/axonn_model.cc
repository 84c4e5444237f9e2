#include "planner/parallelism/published/axonn_model.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace crossmesh {
namespace {

// Order over the devices: c, r, z, data.
std::optional<double> RateOf(const Grid& grid, GridAxis axis, const PublishedCluster& cluster) {
  return cluster.RateOf({InnerSizes(grid, kGridOrder)[axis], grid[axis]});
}

// Sets what follows from the rest. False where there is no rate.
bool Finish(const Grid& grid, const PublishedCluster& cluster, AxonnCollective& collective) {
  collective.group = grid[collective.axis];
  collective.wire_bytes =
      collective.count * WireBytes(collective.op, collective.group, collective.message_bytes);
  if (collective.group == 1) return true;
  const std::optional<double> rate = RateOf(grid, collective.axis, cluster);
  if (!rate) return false;
  collective.bytes_per_second = *rate;
  collective.seconds = collective.wire_bytes / *rate;
  return true;
}

}  // namespace

std::optional<AxonnCollectives> CollectivesOfLayer(const AxonnLayer& layer, const Grid& grid,
                                                   const AxonnCounts& counts,
                                                   const PublishedCluster& cluster) {
  GridAxis summed = GridAxis::kC;
  GridAxis output = GridAxis::kR;
  if (layer.transposed) std::swap(summed, output);
  const auto c = static_cast<double>(grid.c());
  const auto r = static_cast<double>(grid.r());
  const auto z = static_cast<double>(grid.z());
  const double rows = layer.rows / z;
  const double block = layer.k * layer.n / (c * r);
  AxonnCollectives collectives = {
      {{.name = "fwd_all_reduce",
        .axis = summed,
        .message_bytes =
            rows * layer.n / static_cast<double>(grid[output]) * counts.activation_bytes,
        .count = counts.forward_passes},
       {.name = "bwd_all_reduce",
        .axis = output,
        .message_bytes =
            rows * layer.k / static_cast<double>(grid[summed]) * counts.activation_bytes},
       {.name = "weight_all_gather",
        .op = CollectiveOp::kAllGather,
        .axis = GridAxis::kZ,
        .message_bytes = block * counts.weight_bytes,
        .count = counts.weight_gathers * counts.microbatches},
       {.name = "grad_reduce_scatter",
        .op = CollectiveOp::kReduceScatter,
        .axis = GridAxis::kZ,
        .message_bytes = block * counts.weight_bytes,
        .count = counts.microbatches},
       {.name = "data_all_reduce",
        .axis = GridAxis::kData,
        .message_bytes = block / z * counts.data_gradient_bytes}}};
  for (AxonnCollective& collective : collectives) {
    if (!Finish(grid, cluster, collective)) return std::nullopt;
  }
  return collectives;
}

// Axis by axis, as the helper adds up: in another order the last digits differ.
double SecondsOf(const AxonnCollectives& collectives) {
  PerAxis<double> bytes;
  PerAxis<double> rates{{1, 1, 1, 1, 1, 1, 1}};
  for (const AxonnCollective& collective : collectives) {
    bytes[collective.axis] += collective.wire_bytes;
    if (collective.group > 1) rates[collective.axis] = collective.bytes_per_second;
  }
  double seconds = 0;
  for (const GridAxis axis : {GridAxis::kC, GridAxis::kR, GridAxis::kZ, GridAxis::kData}) {
    seconds += bytes[axis] / rates[axis];
  }
  return seconds;
}

std::array<AxonnLayer, kBlockMatrices> LayersOfBlock(double rows, double hidden,
                                                     MlpOutShape shape) {
  const double inner = 4 * hidden;
  const bool quirk = shape == MlpOutShape::kQuirk;
  return {{{.rows = rows, .k = hidden, .n = 3 * hidden},
           {.rows = rows, .k = hidden, .n = hidden, .transposed = true},
           {.rows = rows, .k = hidden, .n = inner},
           {.rows = rows,
            .k = quirk ? hidden : inner,
            .n = quirk ? inner : hidden,
            .transposed = true}}};
}

double GatherBufferBytes(const AxonnLayer& largest, const Grid& grid) {
  constexpr double kBuffers = 2;
  constexpr double kElementBytes = 2;
  return kBuffers * kElementBytes * largest.k * largest.n /
         static_cast<double>(grid.c() * grid.r());
}

std::optional<double> StepSecondsAsAxonn(const AxonnRankingRequest& request, const Grid& grid,
                                         const PublishedCluster& cluster) {
  const double rows =
      static_cast<double>(request.batch * request.sequence) / static_cast<double>(grid.data());
  double seconds = 0;
  for (const AxonnLayer& layer :
       LayersOfBlock(rows, static_cast<double>(request.model.hidden), request.mlp_out)) {
    const auto collectives = CollectivesOfLayer(layer, grid, kHelperCounts, cluster);
    if (!collectives) return std::nullopt;
    seconds += SecondsOf(*collectives);
  }
  return seconds * static_cast<double>(request.model.layers);
}

std::vector<AxonnGrid> RankAsAxonn(const AxonnRankingRequest& request,
                                   const PublishedCluster& cluster) {
  std::vector<AxonnGrid> ranked;
  const auto consider = [&](int64_t c, int64_t r, int64_t z) {
    if (c * r * z < request.tensor_degree_least) return;
    Grid grid;
    grid[GridAxis::kC] = c;
    grid[GridAxis::kR] = r;
    grid[GridAxis::kZ] = z;
    grid[GridAxis::kData] = request.devices / (c * r * z);
    if (grid.devices() != request.devices) return;
    if (request.batch % grid.sample_groups() != 0) return;
    const std::optional<double> seconds = StepSecondsAsAxonn(request, grid, cluster);
    if (seconds) ranked.push_back({grid, *seconds});
  };
  for (int64_t c = 1; c <= request.devices; c *= 2) {
    for (int64_t r = 1; c * r <= request.devices; r *= 2) {
      for (int64_t z = 1; c * r * z <= request.devices; z *= 2) consider(c, r, z);
    }
  }
  std::ranges::sort(ranked, [](const AxonnGrid& left, const AxonnGrid& right) {
    return std::tie(left.seconds, left.grid) < std::tie(right.seconds, right.grid);
  });
  return ranked;
}

}  // namespace crossmesh
