#include "planner/pipeline/search/testing/shared_pipeline.h"

#include <vector>

namespace crossmesh {
namespace {

enum class Placement : uint8_t { kLooped, kV, kTwoWays, kAnywhere };

RankIndex RankOf(RandomSource& random, Placement placement, StageIndex s, int32_t ranks) {
  switch (placement) {
    case Placement::kLooped:
      return s % ranks;
    case Placement::kV:
    case Placement::kTwoWays:
      return s < ranks ? s : 2 * ranks - 1 - s;
    case Placement::kAnywhere:
      return s < ranks ? s : static_cast<RankIndex>(random.Below(ranks));
  }
  return 0;
}

}  // namespace

SharedPipeline RandomSharedPipeline(RandomSource& random) {
  const auto placement = static_cast<Placement>(random.Below(4));
  const int32_t ranks = random.OneIn(3) ? 3 : 2;
  const bool is_uniform = random.OneIn(3);
  const auto time = [&](int64_t least) {
    return static_cast<double>(is_uniform ? 4 : random.Between(least, 8)) / 4;
  };
  SharedPipeline made{.microbatches = static_cast<int32_t>(random.Between(1, ranks == 2 ? 5 : 3))};
  made.profile.rank_bytes_max.resize(ranks);
  std::vector<ByteCount> least(ranks);
  const double transfer = static_cast<double>(random.Between(0, 4)) / 4;
  for (StageIndex s = 0; s < 2 * ranks; ++s) {
    const StageProfile& stage = made.profile.stages.emplace_back(
        StageProfile{.rank = RankOf(random, placement, s, ranks),
                     .forward_seconds = time(1),
                     .input_gradient_seconds = time(1),
                     .weight_gradient_seconds = time(1),
                     .input_gradient_bytes = ByteCount(random.Between(0, 1)),
                     .weight_gradient_bytes = ByteCount(random.Between(1, 2))});
    least[stage.rank] += stage.activation_bytes();
    if (s == 0 || (placement == Placement::kTwoWays && s == ranks)) continue;
    made.profile.edges.push_back(
        {.from = s - 1, .to = s, .forward_seconds = transfer, .backward_seconds = transfer});
  }
  if (random.OneIn(3)) return made;
  for (RankIndex rank = 0; rank < ranks; ++rank) {
    made.profile.rank_bytes_max[rank] = least[rank] + ByteCount(random.Between(0, 6));
  }
  return made;
}

}  // namespace crossmesh
