#pragma once

#include "planner/parallelism/grid.h"
#include "planner/parallelism/training.h"
#include "planner/parallelism/transformer.h"

#include <cstdint>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What a grid must keep to, in the order in which it is asked.
enum class GridRule : uint8_t {
  kHeads,         // r divides the heads
  kKvHeads,       // and those of keys and values
  kFeatures,      // c and r divide every width that they cut
  kCube,          // q^2 does, where scattered activations lie on a cube
  kVectors,       // those on the diagonal: c is r, and c z divides every width
  kShards,        // z divides what is left of every matrix
  kLayers,        // the stages divide the layers
  kExperts,       // the expert axis divides the experts
  kSequence,      // the context axis divides the sequence, twice where attention is causal
  kContextHeads,  // of Ulysses, the heads that r has left as well
  kBatch,         // the groups of samples divide the batch
  kMicrobatch,    // the microbatch divides what a device has of it
  kRows,          // scattered activations: c divides the microbatch, r its rows
  kMicrobatches,  // at least one for every stage; interleaved, a multiple of the stages
  kMemory,        // it fits
};
inline constexpr int kGridRuleCount = 15;
// "heads", "kv heads", ...
absl::string_view GridRuleName(GridRule rule);

// The first rule that fails, of those that need no microbatch; nothing when all hold. Cost: a few
// divisions.
std::optional<GridRule> FirstFailure(const Transformer& model, const Training& training,
                                     const Grid& grid);
// The same of a microbatch on a grid that keeps to them.
std::optional<GridRule> FirstFailure(const Transformer& model, const Training& training,
                                     const Grid& grid, int64_t microbatch);

// What fails and the nearest fix: "r=6 does not divide 64 heads; the nearest that do: r=4, r=8".
// Not of kMemory.
std::string ExplainFailure(const Transformer& model, const Training& training, const Grid& grid,
                           GridRule rule);

// InvalidArgument with that text where kVectors fails.
absl::Status CheckDiagonal(const Transformer& model, const Grid& grid);

// InvalidArgument with that text.
absl::Status CheckGrid(const Transformer& model, const Training& training, const Grid& grid);

}  // namespace crossmesh
