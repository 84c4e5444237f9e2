#pragma once

#include "planner/parallelism/axis_rates.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// GiB and GB are 7 % apart; published rates are in either.
inline constexpr double kGiB = 1073741824.0;
inline constexpr double kGB = 1e9;

// The law that fills what nobody has measured: a group inside a node has `intra`; groups that leave
// it share the node's injection rate, so `inter` over as many as leave one node (arXiv 2305.13525).
// It is wrong by up to 31 % on other machines, and inside nodes by up to 4x: a table is better.
double SharedNodeRate(const AxisPosition& position, int64_t devices_per_node, double intra,
                      double inter);

// A machine that others have published rates of.
struct PublishedCluster {
  struct Row {
    int64_t inner_least = 1;
    int64_t inner_most = 1;
    int64_t own_least = 2;
    int64_t own_most = 2;
    double rate = 0;  // in units
  };

  absl::string_view name;  // "perlmutter_measured", "alps_theory", ...
  int64_t devices_per_node = 1;
  double unit = kGB;
  // Without rows the law above, of these two rates.
  double intra = 0;
  double inter = 0;
  std::span<const Row> rows;

  // Bytes per second; nothing where the table has no row, as the authors' helper has it: it drops
  // such grids.
  std::optional<double> RateOf(const AxisPosition& position) const;
  RateSource source() const { return rows.empty() ? RateSource::kTheory : RateSource::kTable; }
};

std::span<const PublishedCluster> PublishedClusters();
// InvalidArgument, with the names that there are.
absl::StatusOr<const PublishedCluster*> FindCluster(absl::string_view name);

// Rates of so many devices of a cluster, without latency: nothing is published of it. Where the
// table has no row, the law above fills the hole, and the source says theory.
absl::StatusOr<PositionRates> RatesOfCluster(const PublishedCluster& cluster, int64_t devices);

}  // namespace crossmesh
