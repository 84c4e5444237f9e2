#pragma once

#include "planner/parallelism/block_work.h"
#include "planner/parallelism/layer_grids.h"
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

// A grid of a stage, and what ops on it are to take.
struct StageGrid {
  StageSizes sizes;
  BlockWork work;        // of a microbatch of a device
  LayerProducts logits;  // likewise
};

// A stage.
struct StageSettings {
  RankIndex rank = 0;
  std::optional<StageIndex> number = std::nullopt;  // of one of several that the rank has
  bool is_first = true;
  bool is_last = true;
  Transformer model;
  Training training;
  PartsOnGrids parts;
  std::vector<StageGrid> grids;  // in their order
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
  // The same, with the products of the weights' gradients by themselves, and later.
  void BackwardInputs(MicrobatchIndex microbatch);
  void BackwardWeights(MicrobatchIndex microbatch);
  // What is left when all passes are done: scatters that wait, sums over copies, updates.
  void Finish();

 private:
  using Transfer = GridTransfers::Transfer;
  // One of a pass, in the order of the forward pass.
  struct Use {
    BlockMatrix matrix;
    std::optional<int64_t> layer;  // nothing: of logits
    size_t grid = 0;
    LayerProducts seconds;
    double around = 0;       // of what comes before the first of them
    bool is_normed = false;  // after a norm
    bool is_kept = false;    // its gathered weights stay for the backward pass
    bool is_joint = false;   // the one before it is on another grid
  };

  void AddUses();
  const GridTransfers& On(const Use& use) const { return transfers_[use.grid]; }
  int32_t halves() const { return settings_.grids.front().sizes.halves; }
  void AddOp(GridOpKind kind, const Use* use, double seconds, int32_t half = -1);
  // Of the op that was added last, where there is such a transfer.
  void Give(const Transfer& transfer);
  void Need(const Transfer& transfer);

  void ForwardOf(size_t place);
  // The residual stream goes to the use's grid, and its gradient from there.
  void Join(size_t place);
  void JoinBack(size_t place);
  void Loss();
  void BackwardOf(size_t place);
  void InputGradient(const Use& use);
  void WeightGradient(const Use& use);
  void Take(const std::string& matrix);
  void Vectors();        // their gradients are given,
  void UpdateVectors();  // and are here
  // Of the stage on one grid, elements of vectors that c or r cuts, and of embeddings.
  struct VectorSizes {
    int64_t of_c = 0;
    int64_t of_r = 0;
    int64_t of_embeddings = 0;
  };
  VectorSizes SizesOfVectors(size_t grid) const;
  bool diagonal() const { return settings_.training.vectors == VectorForm::kDiagonal; }
  // What gives and takes gradients of vectors: of each grid of c and of r; on the diagonal of
  // embeddings, and what is scattered of c and of r.
  std::vector<Transfer> VectorSums() const;
  void GiveWeights(size_t place, GridOpKind kind);
  bool AreAhead(GridOpKind kind) const;

  template <typename Body>
  void ForHalves(Body body) const {
    if (halves() == 1) return body(-1);
    body(0);
    body(1);
  }
  double PartOf(double seconds) const { return seconds / halves(); }

  const StageSettings settings_;
  std::vector<GridTransfers> transfers_;  // by grid
  ProgramWriter& program_;
  std::vector<Use> uses_;
  std::optional<MicrobatchIndex> microbatch_;  // of the pass
  bool defers_weights_ = false;                // likewise
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
