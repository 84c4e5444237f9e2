// The communication model of AxoNN's 4-D algorithm (Singh et al., arXiv 2305.13525), as the paper
// has it and as the authors' helper has it. Rings, no latency, no overlap, no computing.

#pragma once

#include "planner/parallelism/cluster_tables.h"
#include "planner/parallelism/grid.h"
#include "planner/parallelism/ring_law.h"
#include "planner/parallelism/transformer.h"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include <absl/strings/string_view.h>

namespace crossmesh {

// One linear layer of m x k by k x n.
struct AxonnLayer {
  double rows = 0;  // m: tokens of a group of data
  double k = 0;
  double n = 0;
  bool transposed = false;

  friend bool operator==(const AxonnLayer&, const AxonnLayer&) = default;
};

// How often a step does what, and with which elements. The paper's equations have one of each; the
// helper prices full recomputation.
struct AxonnCounts {
  double forward_passes = 1;
  double weight_gathers = 1;
  double microbatches = 1;  // each gathers and scatters weights again
  double activation_bytes = 2;
  double weight_bytes = 2;
  double data_gradient_bytes = 4;
};
inline constexpr AxonnCounts kHelperCounts{.forward_passes = 2, .weight_gathers = 2};

// What a layer sends over one axis.
struct AxonnCollective {
  absl::string_view name;  // "fwd_all_reduce", "weight_all_gather", ...
  CollectiveOp op = CollectiveOp::kAllReduce;
  GridAxis axis = GridAxis::kC;
  int64_t group = 1;
  double message_bytes = 0;
  double count = 1;
  double wire_bytes = 0;        // of all of them
  double bytes_per_second = 0;  // of a group of more than one
  double seconds = 0;           // of all of them
};
inline constexpr int kAxonnCollectives = 5;
using AxonnCollectives = std::array<AxonnCollective, kAxonnCollectives>;

// The sums of forward and backward, the gather and the scatter of weights, the sum over data; of a
// grid over c, r, z and data, in this order over the devices. Nothing where an axis of more than
// one has a position without a rate.
std::optional<AxonnCollectives> CollectivesOfLayer(const AxonnLayer& layer, const Grid& grid,
                                                   const AxonnCounts& counts,
                                                   const PublishedCluster& cluster);
double SecondsOf(const AxonnCollectives& collectives);

// What the authors' helper makes of the second matrix of the MLP.
enum class MlpOutShape : uint8_t {
  kTrue,  // 4h x h
  // h x 4h though transposed: a message of 4h forward and of h backward. It charges r too much and
  // c too little, and changes winners.
  kQuirk,
};

// The four layers of a block of a plain transformer.
std::array<AxonnLayer, kBlockMatrices> LayersOfBlock(double rows, double hidden, MlpOutShape shape);

// The memory of gathered weights as the paper's grids need it: the largest matrix of a block in
// use, and one that is gathered ahead. Our programs have more (MemoryTerms::gathered).
double GatherBufferBytes(const AxonnLayer& largest, const Grid& grid);

struct AxonnRankingRequest {
  Transformer model;
  int64_t devices = 1;
  int64_t batch = 1;     // sequences
  int64_t sequence = 1;  // tokens
  int64_t tensor_degree_least = 1;
  MlpOutShape mlp_out = MlpOutShape::kTrue;
};
struct AxonnGrid {
  Grid grid;
  double seconds = 0;  // of communication in a step
};
// Every grid of powers of two whose tensor degree is large enough, whose groups of samples divide
// the batch, and all of whose positions have rates; cheapest first, then by c, r, z, data.
std::vector<AxonnGrid> RankAsAxonn(const AxonnRankingRequest& request,
                                   const PublishedCluster& cluster);

// Seconds of communication of a step on one grid.
std::optional<double> StepSecondsAsAxonn(const AxonnRankingRequest& request, const Grid& grid,
                                         const PublishedCluster& cluster);

}  // namespace crossmesh
