#include "planner/parallelism/cluster_tables.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

constexpr int64_t kMore = std::numeric_limits<int64_t>::max();
using Row = PublishedCluster::Row;

// As in the authors' helper, which divides by 2^30 what it calls GB: of groups of 2, of 4, of 8 and
// more. Others below 8 it has none of.
constexpr std::array<Row, 9> kPerlmutter = {{{1, 1, 2, 2, 76},
                                             {1, 1, 4, 4, 225},
                                             {1, 1, 8, kMore, 80},
                                             {2, 2, 2, 2, 76},
                                             {2, 2, 4, 4, 40},
                                             {2, 2, 8, kMore, 40},
                                             {4, kMore, 2, 2, 20},
                                             {4, kMore, 4, 4, 20},
                                             {4, kMore, 8, kMore, 20}}};
constexpr std::array<Row, 13> kFrontier = {{{1, 1, 2, 2, 129},
                                            {1, 1, 4, 4, 52},
                                            {1, 1, 8, 8, 135},
                                            {1, 1, 16, kMore, 40},
                                            {2, 2, 2, 2, 50},
                                            {2, 2, 4, 4, 72},
                                            {2, 2, 8, kMore, 20},
                                            {4, 4, 2, 2, 36},
                                            {4, 4, 4, 4, 10},
                                            {4, 4, 8, kMore, 10},
                                            {8, kMore, 2, 2, 5},
                                            {8, kMore, 4, 4, 5},
                                            {8, kMore, 8, kMore, 5}}};

constexpr std::array<PublishedCluster, 6> kClusters = {{
    {.name = "perlmutter_measured",
     .devices_per_node = 4,
     .unit = kGiB,
     .intra = 225,
     .inter = 80,
     .rows = kPerlmutter},
    {.name = "frontier_measured",
     .devices_per_node = 8,
     .unit = kGiB,
     .intra = 135,
     .inter = 40,
     .rows = kFrontier},
    {.name = "perlmutter_theory", .devices_per_node = 4, .intra = 200, .inter = 100, .rows = {}},
    {.name = "frontier_theory", .devices_per_node = 8, .intra = 50, .inter = 100, .rows = {}},
    {.name = "alps_theory", .devices_per_node = 4, .intra = 150, .inter = 100, .rows = {}},
    {.name = "h100_8x400g_theory", .devices_per_node = 8, .intra = 450, .inter = 400, .rows = {}},
}};

}  // namespace

double SharedNodeRate(const AxisPosition& position, int64_t devices_per_node, double intra,
                      double inter) {
  if (position.inner * position.own <= devices_per_node) return intra;
  return inter / static_cast<double>(std::min(devices_per_node, position.inner));
}

std::optional<double> PublishedCluster::RateOf(const AxisPosition& position) const {
  if (rows.empty()) return unit * SharedNodeRate(position, devices_per_node, intra, inter);
  for (const Row& row : rows) {
    if (position.inner >= row.inner_least && position.inner <= row.inner_most &&
        position.own >= row.own_least && position.own <= row.own_most) {
      return unit * row.rate;
    }
  }
  return std::nullopt;
}

std::span<const PublishedCluster> PublishedClusters() { return kClusters; }

absl::StatusOr<const PublishedCluster*> FindCluster(absl::string_view name) {
  for (const PublishedCluster& cluster : kClusters) {
    if (cluster.name == name) return &cluster;
  }
  std::vector<std::string> names;
  for (const PublishedCluster& cluster : kClusters) names.emplace_back(cluster.name);
  return absl::InvalidArgumentError(absl::StrCat(
      "cluster: expected one of ", absl::StrJoin(names, ", "), ", found \"", name, "\""));
}

absl::StatusOr<PositionRates> RatesOfCluster(const PublishedCluster& cluster, int64_t devices) {
  std::vector<PositionRates::Entry> entries;
  for (const AxisPosition& position : PositionRates::PositionsOf(devices)) {
    const std::optional<double> rate = cluster.RateOf(position);
    const RateLevel level{.size = position.own,
                          .bytes_per_second = rate.value_or(
                              cluster.unit * SharedNodeRate(position, cluster.devices_per_node,
                                                            cluster.intra, cluster.inter))};
    entries.push_back({position, AxisRate(std::span(&level, 1), 0,
                                          rate ? cluster.source() : RateSource::kTheory)});
  }
  return PositionRates::Create(devices, entries);
}

}  // namespace crossmesh
