#include "planner/parallelism/grid_rules.h"

#include "common/base/count_text.h"

#include <algorithm>
#include <array>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr std::array<absl::string_view, kGridRuleCount> kRuleNames = {
    "heads",  "kv heads",   "features", "cube",           "vectors",
    "shards", "layers",     "experts",  "sequence parts", "context heads",
    "batch",  "microbatch", "rows",     "microbatches",   "memory"};

constexpr absl::string_view kSequence = "sequence";
constexpr absl::string_view kSequences = "sequences";

// Larger ones are no fix.
constexpr int64_t kContextMax = 65536;

using BlockMatrices = std::array<BlockMatrix, kBlockMatrices>;

// A size that is to divide a count.
struct Division {
  int64_t size = 1;
  int64_t count = 0;
  absl::string_view one;   // "head",
  absl::string_view many;  // "heads",
  std::string of = "";     // " of keys and values"

  bool fails() const { return count % size != 0; }
};

bool IsCube(const Training& training, const Grid& grid) {
  return training.activations == ActivationForm::kScattered && grid.c() > 1 &&
         grid.c() == grid.r() && grid.r() == grid.z();
}

GridAxis SummedAxis(const BlockMatrix& matrix) {
  return matrix.transposed ? GridAxis::kR : GridAxis::kC;
}
GridAxis OutputAxis(const BlockMatrix& matrix) {
  return matrix.transposed ? GridAxis::kC : GridAxis::kR;
}

bool FeaturesFail(const BlockMatrices& matrices, const Grid& grid) {
  for (const BlockMatrix& matrix : matrices) {
    if (matrix.k % grid[SummedAxis(matrix)] != 0 || matrix.n % grid[OutputAxis(matrix)] != 0) {
      return true;
    }
  }
  return false;
}

bool CubeFails(const BlockMatrices& matrices, const Grid& grid) {
  const int64_t square = grid.c() * grid.c();
  for (const BlockMatrix& matrix : matrices) {
    if (matrix.k % square != 0 || matrix.n % square != 0) return true;
  }
  return false;
}

bool VectorsFail(const BlockMatrices& matrices, const Grid& grid) {
  if (grid.c() != grid.r()) return true;
  const int64_t parts = grid.c() * grid.z();
  return std::ranges::any_of(matrices, [parts](const BlockMatrix& matrix) {
    return matrix.k % parts != 0 || matrix.n % parts != 0;
  });
}

bool ShardsFail(const BlockMatrices& matrices, const Grid& grid) {
  for (const BlockMatrix& matrix : matrices) {
    if (matrix.k * matrix.n / (grid.c() * grid.r()) % grid.z() != 0) return true;
  }
  return false;
}

// The sizes nearest to `size` that divide `count`, one below and one above.
std::string NearestDivisors(absl::string_view name, int64_t size, int64_t count) {
  int64_t below = size - 1;
  while (below > 1 && count % below != 0) --below;
  int64_t above = size + 1;
  while (above <= count && count % above != 0) ++above;
  const std::string lower = absl::StrCat(name, "=", below);
  return above > count ? lower : absl::StrCat(lower, ", ", name, "=", above);
}

std::string DivisionText(absl::string_view name, const Division& division) {
  return absl::StrCat(
      name, "=", division.size, " does not divide ",
      CountText(division.count, division.one, division.many), division.of,
      "; the nearest that do: ", NearestDivisors(name, division.size, division.count));
}

std::string FeaturesText(const Transformer& model, const Grid& grid) {
  for (const BlockMatrix& matrix : MatricesOf(model)) {
    const Division sides[] = {
        {grid[SummedAxis(matrix)], matrix.k, "row", "rows", absl::StrCat(" of ", matrix.name)},
        {grid[OutputAxis(matrix)], matrix.n, "column", "columns",
         absl::StrCat(" of ", matrix.name)}};
    if (sides[0].fails()) return DivisionText(GridAxisName(SummedAxis(matrix)), sides[0]);
    if (sides[1].fails()) return DivisionText(GridAxisName(OutputAxis(matrix)), sides[1]);
  }
  return "";
}

std::string CubeText(const Transformer& model, const Grid& grid) {
  const int64_t q = grid.c();
  for (const BlockMatrix& matrix : MatricesOf(model)) {
    for (const int64_t width : {matrix.k, matrix.n}) {
      if (width % (q * q) == 0) continue;
      int64_t less = q - 1;
      while (less > 1 && width % (less * less) != 0) --less;
      return absl::StrCat("a cube of q=", q, " needs widths that q^2=", q * q, " divides, and ",
                          matrix.name, " has one of ", width, "; the nearest q that does: ", less,
                          ", or replicated activations");
    }
  }
  return "";
}

std::string VectorsText(const Transformer& model, const Grid& grid) {
  const int64_t q = grid.c();
  if (q != grid.r()) {
    const int64_t less = std::min(q, grid.r());
    const int64_t more = std::max(q, grid.r());
    return absl::StrCat("vectors on the diagonal need c = r, and these are ", q, " and ", grid.r(),
                        "; the nearest that do: c=", less, ",r=", less, ", c=", more, ",r=", more,
                        ", or replicated vectors");
  }
  for (const BlockMatrix& matrix : MatricesOf(model)) {
    for (const int64_t width : {matrix.k, matrix.n}) {
      if (width % (q * grid.z()) == 0) continue;
      return absl::StrCat("vectors on the diagonal need widths that c*z=", q * grid.z(),
                          " divides, and ", matrix.name, " has one of ", width,
                          "; the nearest that do: ", NearestDivisors("z", grid.z(), width / q),
                          ", or replicated vectors");
    }
  }
  return "";
}

std::string ShardsText(const Transformer& model, const Grid& grid) {
  for (const BlockMatrix& matrix : MatricesOf(model)) {
    const Division shards{grid.z(), matrix.k * matrix.n / (grid.c() * grid.r()), "element",
                          "elements", absl::StrCat(" of a block of ", matrix.name)};
    if (shards.fails()) return DivisionText("z", shards);
  }
  return "";
}

// Twice, so that each part has an early and a late piece of a causal sequence.
int64_t SequencePieces(int64_t context) { return context == 1 ? 1 : 2 * context; }

std::string SequenceText(const Training& training, int64_t context) {
  const auto fails = [&](int64_t parts) { return training.sequence % SequencePieces(parts) != 0; };
  int64_t below = context - 1;
  while (fails(below)) --below;
  int64_t above = context + 1;
  const int64_t most =
      training.sequence % 2 == 0 ? std::min(training.sequence / 2, kContextMax) : 0;
  while (above <= most && fails(above)) ++above;
  return absl::StrCat("context=", context, " cuts sequences into ", SequencePieces(context),
                      ", which does not divide ", training.sequence,
                      " tokens; the nearest that do: context=", below,
                      above > most ? "" : absl::StrCat(", context=", above));
}

std::string MicrobatchesText(const Training& training, const Grid& grid) {
  const int64_t local = training.batch / grid.sample_groups();
  return absl::StrCat(
      "pipeline=", grid.pipeline(), " needs ",
      training.schedule == GridSchedule::kInterleaved ? "a multiple of as many"
                                                      : "at least as many",
      " microbatches, and a device has ", CountText(local, kSequence, kSequences),
      " of the batch in microbatches of ", training.microbatch == 0 ? 1 : training.microbatch,
      "; the nearest fix: batch=",
      grid.pipeline() * grid.sample_groups() * std::max<int64_t>(1, training.microbatch));
}

// Nothing when there is one that keeps to the rules; else what the smallest fails.
std::optional<GridRule> FailureOfEveryMicrobatch(const Transformer& model, const Training& training,
                                                 const Grid& grid) {
  const int64_t local = training.batch / grid.sample_groups();
  const bool scattered = training.activations == ActivationForm::kScattered;
  const int64_t least = scattered ? grid.c() : 1;
  if (local % least != 0) return GridRule::kRows;
  const std::optional<GridRule> failure = FirstFailure(model, training, grid, least);
  if (failure != GridRule::kRows) return failure;
  for (int64_t microbatch = 2 * least; microbatch <= local; microbatch += least) {
    if (!FirstFailure(model, training, grid, microbatch)) return std::nullopt;
  }
  return failure;
}

}  // namespace

absl::string_view GridRuleName(GridRule rule) { return kRuleNames[static_cast<size_t>(rule)]; }

std::optional<GridRule> FirstFailure(const Transformer& model, const Training& training,
                                     const Grid& grid) {
  const int64_t stages = grid.pipeline() * (grid.pipeline() > 1 ? training.chunks : 1);
  const bool ulysses = training.context == ContextMethod::kUlysses;
  const BlockMatrices matrices = MatricesOf(model);
  if (model.heads % grid.r() != 0) return GridRule::kHeads;
  if (model.kv_heads % grid.r() != 0) return GridRule::kKvHeads;
  if (FeaturesFail(matrices, grid)) return GridRule::kFeatures;
  if (IsCube(training, grid) && CubeFails(matrices, grid)) return GridRule::kCube;
  if (training.vectors == VectorForm::kDiagonal && VectorsFail(matrices, grid)) {
    return GridRule::kVectors;
  }
  if (ShardsFail(matrices, grid)) return GridRule::kShards;
  if (model.layers % stages != 0) return GridRule::kLayers;
  if (std::max<int64_t>(1, model.experts) % grid.expert() != 0) return GridRule::kExperts;
  if (training.sequence % SequencePieces(grid.context()) != 0) return GridRule::kSequence;
  if (ulysses && model.kv_heads / grid.r() % grid.context() != 0) return GridRule::kContextHeads;
  if (training.batch % grid.sample_groups() != 0) return GridRule::kBatch;
  if (training.microbatch > 0) return FirstFailure(model, training, grid, training.microbatch);
  return FailureOfEveryMicrobatch(model, training, grid);
}

std::optional<GridRule> FirstFailure(const Transformer& /*model*/, const Training& training,
                                     const Grid& grid, int64_t microbatch) {
  const int64_t local = training.batch / grid.sample_groups();
  if (local % microbatch != 0) return GridRule::kMicrobatch;
  if (training.activations == ActivationForm::kScattered) {
    const int64_t rows = microbatch * training.sequence / grid.context();
    if (microbatch % grid.c() != 0 || rows % grid.r() != 0) return GridRule::kRows;
  }
  const int64_t microbatches = local / microbatch;
  if (microbatches < grid.pipeline()) return GridRule::kMicrobatches;
  if (training.schedule == GridSchedule::kInterleaved && microbatches % grid.pipeline() != 0) {
    return GridRule::kMicrobatches;
  }
  return std::nullopt;
}

std::string ExplainFailure(const Transformer& model, const Training& training, const Grid& grid,
                           GridRule rule) {
  const int64_t local = training.batch / grid.sample_groups();
  switch (rule) {
    case GridRule::kHeads:
      return DivisionText("r", {grid.r(), model.heads, "head", "heads"});
    case GridRule::kKvHeads:
      return DivisionText("r", {grid.r(), model.kv_heads, "head", "heads", " of keys and values"});
    case GridRule::kFeatures:
      return FeaturesText(model, grid);
    case GridRule::kCube:
      return CubeText(model, grid);
    case GridRule::kVectors:
      return VectorsText(model, grid);
    case GridRule::kShards:
      return ShardsText(model, grid);
    case GridRule::kLayers:
      return DivisionText(training.chunks > 1 ? "pipeline * chunks" : "pipeline",
                          {grid.pipeline() * training.chunks, model.layers, "layer", "layers"});
    case GridRule::kExperts:
      if (model.experts == 0) {
        return absl::StrCat("expert=", grid.expert(),
                            " needs a model with experts; the nearest fix: expert=1");
      }
      return DivisionText("expert", {grid.expert(), model.experts, "expert", "experts"});
    case GridRule::kSequence:
      return SequenceText(training, grid.context());
    case GridRule::kContextHeads:
      return DivisionText("context", {grid.context(), model.kv_heads / grid.r(), "head", "heads",
                                      " of keys and values that r leaves"});
    case GridRule::kBatch:
      return DivisionText("z * expert * data", {grid.sample_groups(), training.batch, kSequence,
                                                kSequences, " of the batch"});
    case GridRule::kMicrobatch:
      return DivisionText("microbatch", {training.microbatch, local, kSequence, kSequences,
                                         " that a device has of the batch"});
    case GridRule::kRows:
      return absl::StrCat("scattered activations need a microbatch that c=", grid.c(),
                          " divides, with rows that r=", grid.r(), " divides; a device has ",
                          CountText(local, kSequence, kSequences),
                          " of the batch; the nearest fix: replicated activations");
    case GridRule::kMicrobatches:
      return MicrobatchesText(training, grid);
    case GridRule::kMemory:
      return "";
  }
  return "";
}

absl::Status CheckDiagonal(const Transformer& model, const Grid& grid) {
  if (!VectorsFail(MatricesOf(model), grid)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("grid ", ToString(grid), ": ", VectorsText(model, grid)));
}

absl::Status CheckGrid(const Transformer& model, const Training& training, const Grid& grid) {
  const std::optional<GridRule> rule = FirstFailure(model, training, grid);
  if (!rule) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("grid ", ToString(grid), ": ", ExplainFailure(model, training, grid, *rule)));
}

}  // namespace crossmesh
