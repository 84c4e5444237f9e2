#include "worker/executor/testing/bare_task.h"

#include "common/base/check.h"
#include "common/mesh/device.h"
#include "common/plan/slicing.h"
#include "common/plan/tensor_table.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/worker_part.h"
#include "worker/executor/prepared_part.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

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

TaskSpec WithOptions(TaskSpec spec, const BareTask::Options& options) {
  spec.checksums = options.checksums;
  spec.receivers_say_ready = options.receivers_say_ready;
  return spec;
}

StagingPool PoolOf(int64_t units) {
  return *StagingPool::Create("crossmesh:bare_task", units * StagingPool::kUnitBytes);
}

}  // namespace

Plan PlanOfRelays(const TensorText& tensor, const std::vector<PlannedRelay>& relays,
                  Plan::Spec rest) {
  Plan::Spec spec = std::move(rest);
  spec.tensors = std::make_shared<const TensorTable>(TableOf({tensor}));
  auto slicing = Slicing::Create(*spec.tensors);
  CHECK_OK(slicing);
  spec.slicing = std::make_shared<const Slicing>(*std::move(slicing));
  std::vector<int64_t> planned(spec.slicing->classes().size());
  for (const PlannedRelay& relay : relays) {
    const std::vector<DeviceRank> ranks = RanksOf(*spec.tensors, relay.chain);
    int64_t& begin = planned.at(relay.slice_class);
    const int64_t all = spec.slicing->classes()[relay.slice_class].bytes;
    const int64_t end = relay.bytes == 0 ? all : begin + relay.bytes;
    spec.relays.push_back({.slice_class = relay.slice_class,
                           .root = ranks.front(),
                           .begin = std::exchange(begin, end),
                           .end = end,
                           .first_hop = std::ssize(spec.hops),
                           .hop_count = static_cast<int32_t>(ranks.size()) - 1,
                           .due = relay.due});
    for (size_t i = 1; i < ranks.size(); ++i) {
      spec.hops.push_back({.from = ranks[i - 1], .to = ranks[i]});
    }
  }
  PlaceHopsInPlanOrder(spec);
  auto plan = Plan::Create(std::move(spec));
  CHECK_OK(plan);
  return *std::move(plan);
}

TaskSpec SpecOfHost(const Plan& plan, const std::string& host, const TileMemory& memory) {
  const std::vector<DeviceId>& devices = plan.tensors().devices();
  TaskSpec spec{.key = {.operation = 1, .epoch = 1}, .token_high = 5, .token_low = 6};
  std::vector<std::vector<DeviceId>> devices_of_worker;
  for (DeviceRank rank = 0; rank < std::ssize(devices); ++rank) {
    const std::string& name = devices[rank].host;
    auto worker = std::ranges::find(spec.peers, name, &TaskPeer::worker);
    if (worker == spec.peers.end()) {
      devices_of_worker.emplace_back();
      spec.peers.push_back({.worker = name, .address = absl::StrCat("address of ", name)});
      worker = std::prev(spec.peers.end());
    }
    const auto index = static_cast<int32_t>(worker - spec.peers.begin());
    devices_of_worker[index].push_back(devices[rank]);
    if (name != host) {
      spec.peer_of_device[rank] = index;
    } else {
      spec.sources[rank] = memory.tiles(Side::kSource, rank);
      spec.destinations[rank] = memory.tiles(Side::kDestination, rank);
    }
  }
  auto parts = CutParts(plan, devices_of_worker);
  CHECK_OK(parts);
  const auto own = std::ranges::find(spec.peers, host, &TaskPeer::worker) - spec.peers.begin();
  auto part = PreparedPart::Create(std::make_shared<const WorkerPart>(std::move(parts->at(own))));
  CHECK_OK(part);
  spec.part = *std::move(part);
  return spec;
}

BareTask::BareTask(const Plan& plan, const std::string& host, const Options& options)
    : memory(plan),
      spec(WithOptions(SpecOfHost(plan, host, memory), options)),
      shared{.loop = *loop,
             .transport = transport,
             .options = {.window_periods = options.window_periods},
             .on_peer_stalled = [](PeerId /*peer*/, const absl::Status& /*why*/) {},
             .steps = StepRequests(*loop, [this] { ++steps; }),
             .send_staging = PoolOf(options.staging_units),
             .receive_staging = PoolOf(options.staging_units)},
      progress(*spec.part, spec.checksums,
               [this](int32_t node) {
                 if (on_node) on_node(node);
               }),
      report{.key = spec.key},
      scales(*spec.part, spec.sources),
      context{.spec = spec,
              .part = *spec.part,
              .shared = shared,
              .progress = progress,
              .report = report,
              .owner = *this,
              .scales = scales} {
  transport.lane_count = options.lanes;
}

}  // namespace crossmesh
