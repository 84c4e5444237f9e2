#include "common/plan/testing/chain_plan.h"

#include "common/base/check.h"
#include "common/mesh/device.h"
#include "common/plan/slicing.h"
#include "common/plan/tensor_table.h"
#include "common/plan/testing/random_tensors.h"

#include <iterator>
#include <memory>
#include <utility>

#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

std::vector<DeviceRank> RanksOf(const TensorTable& tensors, absl::string_view chain) {
  std::vector<DeviceRank> ranks;
  for (const absl::string_view text : absl::StrSplit(chain, " > ")) {
    const auto device = ParseDevice(text);
    CHECK_OK(device);
    const auto rank = tensors.FindDevice(*device);
    CHECK(rank.has_value()) << "no tensor lies on " << text;
    ranks.push_back(*rank);
  }
  return ranks;
}

}  // namespace

Plan ChainPlan(const TensorText& tensor, const std::vector<std::string>& chains, Plan::Spec rest) {
  Plan::Spec spec = std::move(rest);
  spec.tensors = std::make_shared<const TensorTable>(TableOf({tensor}));
  auto slicing = Slicing::Create(*spec.tensors);
  CHECK_OK(slicing);
  spec.slicing = std::make_shared<const Slicing>(*std::move(slicing));
  for (const std::string& chain : chains) {
    const std::vector<DeviceRank> ranks = RanksOf(*spec.tensors, chain);
    const auto slice_class = static_cast<ClassIndex>(spec.relays.size());
    spec.relays.push_back({.slice_class = slice_class,
                           .root = ranks.front(),
                           .begin = 0,
                           .end = spec.slicing->classes().at(slice_class).bytes,
                           .first_hop = std::ssize(spec.hops),
                           .hop_count = static_cast<int32_t>(ranks.size()) - 1});
    for (size_t i = 1; i < ranks.size(); ++i) {
      spec.hops.push_back({.from = ranks[i - 1], .to = ranks[i]});
    }
  }
  PlaceHopsInPlanOrder(spec);
  auto plan = Plan::Create(std::move(spec));
  CHECK_OK(plan);
  return *std::move(plan);
}

}  // namespace crossmesh
