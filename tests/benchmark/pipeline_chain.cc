#include "tests/benchmark/pipeline_chain.h"

#include <algorithm>
#include <vector>

namespace crossmesh {

double AboutOne(std::mt19937_64& random, double deviation) {
  return 1 + deviation * (2 * static_cast<double>(random() >> 11) * 0x1p-53 - 1);
}

PipelineProfile RandomChain(std::mt19937_64& random, int32_t stages, double deviation,
                            double transfer_seconds) {
  PipelineProfile profile;
  profile.rank_bytes_max.resize(stages);
  for (StageIndex s = 0; s < stages; ++s) {
    StageProfile& stage = profile.stages.emplace_back(StageProfile{.rank = s});
    stage.forward_seconds = AboutOne(random, deviation);
    stage.input_gradient_seconds = AboutOne(random, deviation);
    stage.weight_gradient_seconds = AboutOne(random, deviation);
    stage.weight_gradient_bytes = ByteCount(1);
    if (s == 0) continue;
    profile.edges.push_back({.from = s - 1,
                             .to = s,
                             .forward_seconds = transfer_seconds,
                             .backward_seconds = transfer_seconds});
  }
  return profile;
}

void AddPortsOfRanks(PipelineProfile& profile) {
  const auto ports = [](RankIndex sender, RankIndex receiver) {
    std::vector<PortIndex> both = {2 * sender, 2 * receiver + 1};
    std::ranges::sort(both);
    return both;
  };
  for (EdgeProfile& edge : profile.edges) {
    const RankIndex from = profile.stages[edge.from].rank, to = profile.stages[edge.to].rank;
    edge.forward_ports = ports(from, to);
    edge.backward_ports = ports(to, from);
  }
}

}  // namespace crossmesh
