#include "planner/pipeline/transfer_model.h"

#include <algorithm>
#include <utility>

#include <absl/container/flat_hash_map.h>

namespace crossmesh {
namespace {

// In the order of TransferModel.
constexpr std::array<absl::string_view, 6> kNames = {"latency", "link",  "pair",
                                                     "nic",     "ports", "blocking"};
static_assert(kNames.size() == kAllTransferModels.size());

// What a port is of: a kind of end and up to two ranks.
using PortKey = std::pair<RankIndex, RankIndex>;
constexpr RankIndex kAny = -1;

absl::InlinedVector<PortKey, 2> KeysOf(RankIndex from, RankIndex to, TransferModel model) {
  switch (model) {
    case TransferModel::kLatency:
      return {};
    case TransferModel::kLink:
      return {{from, to}};
    case TransferModel::kPair:
      return {{std::min(from, to), std::max(from, to)}};
    case TransferModel::kNic:
      return {{from, kAny}, {kAny, to}};
    case TransferModel::kPorts:
      return {};
    case TransferModel::kBlocking:
      // The ranks themselves, each as its own port.
      return {{from, from}, {to, to}};
  }
  return {};
}

}  // namespace

absl::string_view TransferModelName(TransferModel model) {
  return kNames[static_cast<size_t>(model)];
}

TransferPorts::TransferPorts(const PipelineProfile& profile, TransferModel model) {
  model == TransferModel::kPorts ? TakeFromEdges(profile) : ShareBetweenRanks(profile, model);
}

TransferPorts::TransferPorts(std::vector<absl::InlinedVector<PortIndex, 2>> of_transfer)
    : of_transfer_(std::move(of_transfer)) {
  for (const auto& ports : of_transfer_) {
    if (!ports.empty()) size_ = std::max(size_, ports.back() + 1);
  }
}

void TransferPorts::TakeFromEdges(const PipelineProfile& profile) {
  for (const EdgeProfile& edge : profile.edges) {
    for (const std::vector<PortIndex>* ports : {&edge.forward_ports, &edge.backward_ports}) {
      absl::InlinedVector<PortIndex, 2>& held = of_transfer_.emplace_back();
      if (!profile.passes(edge) || ports->empty()) continue;
      held.assign(ports->begin(), ports->end());
      size_ = std::max(size_, held.back() + 1);
    }
  }
}

void TransferPorts::ShareBetweenRanks(const PipelineProfile& profile, TransferModel model) {
  absl::flat_hash_map<PortKey, PortIndex> known;
  for (const EdgeProfile& edge : profile.edges) {
    const RankIndex from = profile.stages[edge.from].rank, to = profile.stages[edge.to].rank;
    for (const auto& [begin, end] : {std::pair(from, to), std::pair(to, from)}) {
      absl::InlinedVector<PortIndex, 2>& ports = of_transfer_.emplace_back();
      // Within a rank nothing passes; the empty entry keeps places equal to transfers.
      if (begin == end) continue;
      for (const PortKey& key : KeysOf(begin, end, model)) {
        ports.push_back(known.try_emplace(key, static_cast<PortIndex>(known.size())).first->second);
      }
    }
  }
  size_ = static_cast<int32_t>(known.size());
}

}  // namespace crossmesh
