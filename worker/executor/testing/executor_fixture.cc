#include "worker/executor/testing/executor_fixture.h"

#include "common/base/check.h"
#include "common/plan/scale_tensors.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/worker_part.h"
#include "worker/executor/prepared_part.h"
#include "worker/transport/striped/striped_transport.h"
#include "worker/transport/testing/inprocess_transport.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Each class goes from its first holder to its first receiver, in one hop.
Plan PlanOf(TensorTable::Spec spec) {
  auto tensors = std::make_shared<const TensorTable>(*TensorTable::Create(std::move(spec)));
  auto slicing = std::make_shared<const Slicing>(*Slicing::Create(*tensors));
  Plan::Spec plan{.tensors = tensors, .slicing = slicing, .chunk_bytes = Plan::kLeafBytes};
  for (ClassIndex c = 0; c < std::ssize(slicing->classes()); ++c) {
    const DeviceRank from = slicing->holders(c)[0];
    const DeviceRank to = slicing->receivers(c)[0];
    if (from == to) {
      plan.copies.push_back({.slice_class = c, .device = to});
      continue;
    }
    plan.relays.push_back({.slice_class = c,
                           .root = from,
                           .end = slicing->classes()[c].bytes,
                           .first_hop = std::ssize(plan.hops),
                           .hop_count = 1,
                           .due = {0, DueTime::kParts}});
    plan.hops.push_back({.from = from, .to = to});
  }
  PlaceHopsInPlanOrder(plan);
  return *Plan::Create(std::move(plan));
}

void AddTensor(const std::vector<int64_t>& lengths, TensorTable::Spec& spec) {
  spec.groups.push_back({.shape = *Shape::Create(lengths), .type = DataType::kF32});
  spec.group_of_tensor = {0};
}

}  // namespace

Plan MakePlan(const std::string& from, const std::string& to) {
  TensorTable::Spec spec;
  spec.sources.push_back({*ParseMesh(absl::StrCat("x=1 on ", from)), *ParseLayout("[x, -]")});
  spec.destinations.push_back({*ParseMesh(absl::StrCat("y=2 on ", to)), *ParseLayout("[-, y]")});
  AddTensor({64, 16384}, spec);
  return PlanOf(std::move(spec));
}

Plan MakeGatheringPlan(const std::string& to, int64_t chunk_bytes) {
  TensorTable::Spec tensors;
  tensors.sources.push_back({*ParseMesh("x=2 on a.0-1"), *ParseLayout("[-, x]")});
  tensors.destinations.push_back({*ParseMesh(absl::StrCat("y=1 on ", to)), *ParseLayout("[y, -]")});
  AddTensor({256, 4096}, tensors);
  Plan::Spec spec = PlanOf(std::move(tensors)).spec();
  spec.chunk_bytes = chunk_bytes;
  Relay last = spec.relays[0];
  last.begin = spec.relays[0].end = last.end - Plan::kLeafBytes;
  last.first_hop = std::ssize(spec.hops);
  spec.hops.push_back({.from = last.root, .to = spec.hops[0].to});
  spec.relays.insert(spec.relays.begin() + 1, last);
  PlaceHopsInPlanOrder(spec);
  return *Plan::Create(std::move(spec));
}

Plan MakeSlowPlan(double least_seconds) {
  Plan::Spec spec = MakePlan("a.0", "b.0-1").spec();
  spec.least_run_ns = static_cast<int64_t>(least_seconds * 1e9);
  return *Plan::Create(std::move(spec));
}

Plan MakeQuantizedPlan(const std::string& to) {
  TensorTable::Spec spec;
  spec.sources.push_back({*ParseMesh("x=2 on a.0-1"), *ParseLayout("[x, -]")});
  spec.destinations.push_back({*ParseMesh(absl::StrCat("y=1 on ", to)), *ParseLayout("[y, -]")});
  const std::vector<int64_t> lengths = {256, 128};
  spec.groups.push_back(
      {.shape = *Shape::Create(lengths), .type = DataType::kBF16, .sent_as = DataType::kF8E4M3});
  spec.group_of_tensor = {0};
  CHECK_OK(AddScales(spec));
  return PlanOf(std::move(spec));
}

ExecutorTest::ExecutorTest(ExecutorOptions options, size_t nics) {
  const StripedTransport::MakeNic make = [this](TransportSink& sink) {
    return InProcessTransport::Create(fabric_, sink);
  };
  const std::vector makers(nics, make);
  for (Worker& worker : workers_) {
    worker.executor = Executor::Create(*loop_, options);
    worker.transport =
        nics == 0 ? *make(*worker.executor) : *StripedTransport::Create(*worker.executor, makers);
    CHECK_OK(worker.executor->Attach(*worker.transport));
    loop_->AddSource(*worker.transport);
  }
}

void ExecutorTest::StartBoth(const Plan& plan, const TileMemory& memory) {
  for (int i = 0; i < 2; ++i) {
    CHECK_OK(workers_[i].executor->Start(MakeSpec(i, plan, memory), workers_[i].reports));
  }
}

TaskSpec ExecutorTest::MakeSpec(int worker, const Plan& plan, const TileMemory& memory) {
  std::vector<std::vector<DeviceId>> devices(2);
  for (const DeviceId& device : plan.tensors().devices()) {
    devices[device.host == "a" ? 0 : 1].push_back(device);
  }
  TaskSpec spec{.key = kKey, .token_high = 5, .token_low = 6};
  auto parts = *CutParts(plan, devices);
  spec.part = *PreparedPart::Create(std::make_shared<const WorkerPart>(std::move(parts[worker])));
  for (int i = 0; i < 2; ++i) {
    spec.peers.push_back({absl::StrCat("w", i), workers_[i].transport->address()});
  }
  for (DeviceRank rank = 0; rank < std::ssize(plan.tensors().devices()); ++rank) {
    const int owner = plan.tensors().devices()[rank].host == "a" ? 0 : 1;
    if (owner != worker) {
      spec.peer_of_device[rank] = owner;
    } else {
      spec.sources[rank] = memory.tiles(Side::kSource, rank);
      spec.destinations[rank] = memory.tiles(Side::kDestination, rank);
    }
  }
  return spec;
}

}  // namespace crossmesh
