#pragma once

#include "planner/parallelism/grid.h"

#include <cstdint>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What is computed again in the backward pass instead of being kept.
enum class Recompute : uint8_t {
  kNone,
  kSelective,  // the core of attention
  kFull,       // everything but the input of each block
};
// "none", "selective", "full".
absl::string_view RecomputeName(Recompute recompute);

// How keys and values reach the parts of a sequence.
enum class ContextMethod : uint8_t {
  kRing,       // from neighbour to neighbour, while attention is computed
  kAllGather,  // before it
  kUlysses,    // by exchanging heads for parts
};
// "ring", "all_gather", "ulysses".
absl::string_view ContextMethodName(ContextMethod method);

// The schedules of planner/pipeline that have a closed form.
enum class GridSchedule : uint8_t { kGpipe, kOneForwardOneBackward, kEager, kInterleaved, kZbH1 };
// As planner/pipeline/schedules/schedule_names.h has them: "gpipe", "1f1b", "eager_1f1b",
// "interleaved_1f1b", "zb_h1".
absl::string_view GridScheduleName(GridSchedule schedule);

// Of Recompute, ContextMethod, GridSchedule, ActivationForm and VectorForm. InvalidArgument, with
// those that there are.
absl::StatusOr<Recompute> ParseRecompute(absl::string_view text);
absl::StatusOr<ContextMethod> ParseContextMethod(absl::string_view text);
absl::StatusOr<GridSchedule> ParseGridSchedule(absl::string_view text);
absl::StatusOr<ActivationForm> ParseActivationForm(absl::string_view text);
absl::StatusOr<VectorForm> ParseVectorForm(absl::string_view text);

// Which collectives run beside products: AxoNN's overlaps (arXiv 2305.13525), each by itself.
struct Overlaps {
  bool input_gradients = true;   // OAR: of the sum of dI behind the product of dW
  bool weight_gradients = true;  // ORS: of scatters behind the backward of earlier layers
  bool weight_gathers = true;    // OAG: one layer ahead, in the forward pass
  // One layer ahead in the backward pass too, which the authors' code has not.
  bool backward_gathers = false;
  // The batch in two: the sums of the first half behind the product of the second.
  bool split_batch = false;

  friend bool operator==(const Overlaps&, const Overlaps&) = default;
};
inline constexpr Overlaps kNoOverlaps{false, false, false, false, false};

// How a model is trained, on whatever grid.
struct Training {
  int64_t batch = 0;       // sequences of a step
  int64_t sequence = 0;    // tokens
  int64_t microbatch = 0;  // sequences of one on a device; 0: the best that fits
  ActivationForm activations = ActivationForm::kReplicated;
  // Of scattered activations: the gathered input stays for the weight gradient instead of being
  // gathered again.
  bool keep_gathered = false;
  VectorForm vectors = VectorForm::kReplicated;  // kDiagonal: of scattered activations
  Recompute recompute = Recompute::kNone;
  bool flash_attention = true;  // scores are not stored
  GridSchedule schedule = GridSchedule::kOneForwardOneBackward;
  int64_t chunks = 1;  // stages of a rank, of kInterleaved
  ContextMethod context = ContextMethod::kRing;
  double expert_imbalance = 1;  // tokens of the busiest expert's device over the mean
  int zero = 0;               // what the data axis cuts: 1 moments, 2 gradients too, 3 weights too
  int64_t cached_layers = 0;  // of a device, whose gathered weights stay for the backward pass
  // Of each matrix of a device's stage, the scatters of gradients that may be under way at once,
  // with Overlaps::weight_gradients.
  int64_t pending_scatters = 1;
  double element_bytes = 2;        // of weights, activations and scattered gradients
  double data_gradient_bytes = 4;  // of gradients that are summed over data
  Overlaps overlaps;
  GridOrder order = kGridOrder;

  friend bool operator==(const Training&, const Training&) = default;
};

// InvalidArgument, naming the figure, when it is out of its range; vectors on the diagonal beside
// replicated activations.
absl::Status Validate(const Training& training);

}  // namespace crossmesh
