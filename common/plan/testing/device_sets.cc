#include "common/plan/testing/device_sets.h"

#include "common/plan/id_sets.h"

#include <cstdint>
#include <utility>

namespace crossmesh {

void ReplaceFirstSet(WorkerPart::Spec& spec, const std::vector<DeviceRank>& ranks) {
  IdSetList sets;
  sets.Add(ranks);
  for (int32_t set = 1; set < spec.device_sets.size(); ++set) sets.Add(spec.device_sets[set]);
  spec.device_sets = std::move(sets);
}

}  // namespace crossmesh
