#pragma once

#include "planner/parallelism/block_work.h"
#include "planner/parallelism/programs/grid_op.h"
#include "planner/parallelism/programs/grid_transfers.h"
#include "planner/parallelism/programs/program_writer.h"
#include "planner/parallelism/training.h"
#include "planner/parallelism/transformer.h"
#include "planner/pipeline/op.h"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace crossmesh {

// A stage, and what its ops are to take.
struct StageSettings {
  RankIndex rank = 0;
  bool is_first = true;
  bool is_last = true;
  int64_t first_layer = 0;
  int64_t layers = 0;
  Transformer model;
  Training training;
  StageSizes sizes;
  BlockWork work;        // of a microbatch of a device
  LayerProducts logits;  // likewise
  // From the stage before and to the next one, and the other way.
  GridTransfers::Transfer activations_in = std::nullopt;
  GridTransfers::Transfer activations_out = std::nullopt;
  GridTransfers::Transfer gradients_in = std::nullopt;
  GridTransfers::Transfer gradients_out = std::nullopt;
};

// Writes the ops of one stage, pass by pass.
class StageWriter {
 public:
  // `program` must outlive it.
  StageWriter(StageSettings settings, ProgramWriter& program);

  // What comes before all passes: vectors of the diagonal, to where they are used.
  void Begin();
  void Forward(MicrobatchIndex microbatch);
  void Backward(MicrobatchIndex microbatch);
  // What is left when all passes are done: scatters that wait, sums over copies, updates.
  void Finish();

 private:
  using Transfer = GridTransfers::Transfer;
  // One of a pass, in the order of the forward pass.
  struct Use {
    BlockMatrix matrix;
    std::optional<int64_t> layer;  // nothing: of logits
    LayerProducts seconds;
    double around = 0;       // of what comes before the first of them
    bool is_normed = false;  // after a norm
    bool is_kept = false;    // its gathered weights stay for the backward pass
  };

  void AddUses();
  void AddOp(GridOpKind kind, const Use* use, double seconds, int32_t half = -1);
  // Of the op that was added last, where there is such a transfer.
  void Give(const Transfer& transfer);
  void Need(const Transfer& transfer);

  void ForwardOf(size_t place);
  void Loss();
  void BackwardOf(size_t place);
  void InputGradient(const Use& use);
  void WeightGradient(const Use& use);
  void Take(const std::string& matrix);
  void Vectors();        // their gradients are given,
  void UpdateVectors();  // and are here
  // Of the stage, elements of vectors that c or r cuts, and of embeddings.
  struct VectorSizes {
    int64_t of_c = 0;
    int64_t of_r = 0;
    int64_t of_embeddings = 0;
  };
  VectorSizes SizesOfVectors() const;
  void GiveWeights(size_t place, GridOpKind kind);
  bool IsAhead(const Use& use, GridOpKind kind) const;

  template <typename Body>
  void ForHalves(Body body) const {
    if (settings_.sizes.halves == 1) return body(-1);
    body(0);
    body(1);
  }
  double PartOf(double seconds) const { return seconds / settings_.sizes.halves; }

  const StageSettings settings_;
  const GridTransfers transfers_;
  ProgramWriter& program_;
  std::vector<Use> uses_;
  std::optional<MicrobatchIndex> microbatch_;  // of the pass
  // What the next op of the pass needs first.
  Transfer awaited_;
  // By matrix, what waits for its scatter: its layer, and of which microbatch.
  struct Pending {
    const Use* use = nullptr;
    std::optional<MicrobatchIndex> microbatch;
  };
  std::map<std::string, std::deque<Pending>> pending_;
};

}  // namespace crossmesh
