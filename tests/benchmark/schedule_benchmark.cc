// How near plans come to the bound on random networks, by simulation: requests with up to 8 hosts,
// 1 to 4 NICs each, equal and unequal rates, replicas, uneven cuts, shared and overlapping meshes;
// with latencies, and on networks that are not quite as described. With racks, plans are compared
// with the terms of the bound and with the linear programme of the least time. Deterministic.
// Prints a table, or one line of JSON per line of it.

#include "common/base/check.h"
#include "common/base/table.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/random_topology.h"
#include "planner/network/demands.h"
#include "planner/network/host_network.h"
#include "planner/network/simulator.h"
#include "planner/reshard/plan_reshard.h"
#include "tests/benchmark/rack_program.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

struct Options {
  int64_t instances = 3000;
  uint64_t first_seed = 0;
  int64_t chunks = 200;  // of the slowest port in use, in the time of the bound, at least
  double latency = 0;    // of the time of the bound: of all hops of the deepest route, at most
  double deviation = 0;  // of every rate and latency, up to that part either way, from that planned
  std::string sharing = "planned";
  std::vector<std::string> strategies = {"relay"};
  bool racks = false;
  int64_t worst = 0;  // of a strategy, listed with the parts of their excess
  bool json = false;

  // What plans are compared with: columns of Ratios.
  std::vector<std::string> references() const {
    if (racks) return {"four terms", "programme"};
    return {"bound"};
  }
};

// A run of a plan, in units of a reference.
struct Ratio {
  double run = 0;
  double beside_fill = 0;  // run / (1 + (depth - 1) / chunks)
  double busiest_port = 0;
  double fill = 0;
  double blocking = 0;
  uint64_t seed = 0;
};

// One for each reference of each strategy.
using Ratios = std::vector<Ratio>;

// Chunks so small that a few per cent of one is less than a leaf would not show the schedule.
constexpr int64_t kLeavesMin = 16;

// The largest size that gives the slowest NIC of a host that sends or receives `chunks` of them in
// the time of the bound; nothing when the request is too small for that.
std::optional<int64_t> ChunkBytes(const Plan& plan, const Topology& topology, int64_t chunks) {
  double slowest = 0;
  const auto consider = [&slowest](int64_t rate) {
    slowest = slowest == 0 ? static_cast<double>(rate) : std::min(slowest, double(rate));
  };
  for (const Hop& hop : plan.hops()) {
    const TensorTable& tensors = plan.tensors();
    const HostRank from = tensors.host_of(hop.from), to = tensors.host_of(hop.to);
    if (from == to) continue;
    for (const Nic& nic : topology.FindHost(tensors.hosts()[from])->nics) {
      consider(nic.out_bytes_per_second);
    }
    for (const Nic& nic : topology.FindHost(tensors.hosts()[to])->nics) {
      consider(nic.in_bytes_per_second);
    }
  }
  const double most = plan.figures().bound.seconds * slowest / static_cast<double>(chunks);
  const auto leaves = static_cast<int64_t>(most / static_cast<double>(Plan::kLeafBytes));
  if (leaves < kLeavesMin) return std::nullopt;
  return leaves * Plan::kLeafBytes;
}

// The network with every NIC as `change` leaves it, and every rack's uplink.
template <typename ChangeNic, typename ChangeRack>
Topology Changed(const Topology& topology, ChangeNic change_nic, ChangeRack change_rack) {
  std::vector<Host> hosts = topology.hosts();
  std::vector<Rack> racks = topology.racks();
  for (Host& host : hosts) std::ranges::for_each(host.nics, change_nic);
  std::ranges::for_each(racks, change_rack);
  absl::StatusOr<Topology> changed =
      Topology::Create(std::move(hosts), std::move(racks), topology.assumed_bytes_per_second());
  CHECK_OK(changed);
  return *std::move(changed);
}

// With latencies at random such that all on the plan's deepest route are at most `part` of its
// bound.
Topology WithLatencies(const Topology& topology, double part, const PlanFigures& figures,
                       RandomSource& random) {
  const auto most = static_cast<int64_t>(part * figures.bound.seconds * 1e9 / (2 * figures.depth));
  return Changed(
      topology,
      [&](Nic& nic) {
        nic.out_latency_ns = random.Between(0, most);
        nic.in_latency_ns = random.Between(0, most);
      },
      [](Rack&) {});
}

// With every rate and latency off at random, up to `part` either way.
Topology Deviating(const Topology& topology, double part, RandomSource& random) {
  const auto deviate = [&](int64_t& value) {
    constexpr int64_t kSteps = 1'000'000;
    const double off = static_cast<double>(random.Between(-kSteps, kSteps)) / double(kSteps);
    value = std::llround(static_cast<double>(value) * (1 + part * off));
  };
  return Changed(
      topology,
      [&](Nic& nic) {
        deviate(nic.out_bytes_per_second);
        deviate(nic.in_bytes_per_second);
        deviate(nic.out_latency_ns);
        deviate(nic.in_latency_ns);
      },
      [&](Rack& rack) {
        deviate(rack.up_bytes_per_second);
        deviate(rack.down_bytes_per_second);
      });
}

// The request of a seed.
ReshardRequest RequestOf(uint64_t seed, RandomSource& random, bool racks) {
  const RandomTensorsOptions tensors = {
      .slots_max = 16, .hosts_max = 4, .tensors_max = 3, .length_max = 4000, .rank_max = 3};
  ReshardRequest request;
  request.tensors = std::make_shared<const TensorTable>(RandomTensorTable(random, tensors));
  const int64_t rates_max = random.OneIn(2) ? 8 : 1;
  request.topology = RandomTopology(random, *request.tensors,
                                    {.nics_max = random.OneIn(2) ? 1 : 4,
                                     .bytes_per_second = 10'000'000'000,
                                     .rates_max = rates_max,
                                     .racks = racks});
  request.seed = seed;
  return request;
}

// In the order of Options::references.
std::vector<double> ReferenceSeconds(const ReshardRequest& request, const Bound& bound,
                                     bool racks) {
  if (!racks || request.topology.racks().empty()) {
    return std::vector<double>(racks ? 2 : 1, bound.seconds);
  }
  const absl::StatusOr<Slicing> slicing = Slicing::Create(*request.tensors);
  CHECK_OK(slicing);
  const HostGroups groups = GroupByHosts(*request.tensors, *slicing);
  const HostNetwork network = HostNetworkOf(*request.tensors, request.topology);
  return {std::max({bound.ingress_seconds, bound.uplink_seconds, bound.rack_ingress_seconds,
                    bound.rack_uplink_seconds}),
          RackProgramSeconds(groups.demands, network)};
}

// The ratios of the strategies on the request of a seed; none when nothing crosses the network, or
// not enough.
Ratios RatiosOf(uint64_t seed, const Options& options) {
  RandomSource random(seed);
  ReshardRequest request = RequestOf(seed, random, options.racks);
  const absl::StatusOr<Plan> first = PlanReshard(request);
  CHECK_OK(first);
  if (first->figures().bound.seconds <= 0) return {};
  const std::optional<int64_t> chunk_bytes = ChunkBytes(*first, request.topology, options.chunks);
  if (!chunk_bytes.has_value()) return {};
  request.chunk_bytes = *chunk_bytes;
  const std::vector<double> references =
      ReferenceSeconds(request, first->figures().bound, options.racks);
  if (options.latency > 0) {
    request.topology = WithLatencies(request.topology, options.latency, first->figures(), random);
  }
  const Topology actual = Deviating(request.topology, options.deviation, random);
  const SimulatorOptions simulator = {.sharing = options.sharing == "planned"
                                                     ? PortSharingRule::kPlanned
                                                     : PortSharingRule::kEqual};
  Ratios ratios;
  for (const std::string& name : options.strategies) {
    const absl::StatusOr<Strategy> strategy = ParseStrategy(name);
    CHECK_OK(strategy);
    request.strategy = *strategy;
    const absl::StatusOr<Plan> plan = PlanReshard(request);
    CHECK_OK(plan);
    const absl::StatusOr<SimulatedTimeline> run = Simulate(*plan, actual, simulator);
    CHECK_OK(run);
    const PlanFigures& figures = plan->figures();
    const double busiest = figures.bound.seconds + figures.excess.rounding_seconds;
    const double filled = 1 + std::max(0, figures.depth - 1) / double(options.chunks);
    for (const double reference : references) {
      ratios.push_back(
          {.run = run->seconds / reference,
           .beside_fill = run->seconds / reference / filled,
           .busiest_port = busiest / reference,
           .fill = figures.excess.fill_seconds / reference,
           .blocking = (run->seconds - busiest - figures.excess.fill_seconds) / reference,
           .seed = seed});
    }
  }
  return ratios;
}

struct Distribution {
  double mean = 0, p90 = 0, p99 = 0, worst = 0;
  double above_bound = 0;  // share of the instances more than 0.5 % above
  Ratio worst_beside_fill;
};

// Of ratios by `run`, ascending.
Distribution DistributionOf(const Ratios& ratios) {
  const auto count = static_cast<double>(ratios.size());
  Distribution d;
  for (const Ratio& ratio : ratios) {
    d.mean += ratio.run / count;
    d.above_bound += ratio.run > 1.005 ? 1 / count : 0;
  }
  d.p90 = ratios[ratios.size() * 9 / 10].run;
  d.p99 = ratios[ratios.size() * 99 / 100].run;
  d.worst = ratios.back().run;
  d.worst_beside_fill = *std::ranges::max_element(ratios, {}, &Ratio::beside_fill);
  return d;
}

std::string Cell(double value) { return absl::StrFormat("%.4f", value); }

// What all results of a strategy against a reference are printed as.
class Report {
 public:
  explicit Report(const Options& options) : options_(options) {}

  void Add(const std::string& strategy, const std::string& reference, Ratios ratios) {
    std::ranges::sort(ratios, {}, &Ratio::run);
    const Distribution d = DistributionOf(ratios);
    if (options_.json) {
      const nlohmann::json line = {{"strategy", strategy},
                                   {"reference", reference},
                                   {"instances", ratios.size()},
                                   {"chunks", options_.chunks},
                                   {"latency", options_.latency},
                                   {"deviation", options_.deviation},
                                   {"sharing", options_.sharing},
                                   {"mean", d.mean},
                                   {"p90", d.p90},
                                   {"p99", d.p99},
                                   {"worst", d.worst},
                                   {"worst_beside_fill", d.worst_beside_fill.beside_fill},
                                   {"worst_seed", d.worst_beside_fill.seed}};
      std::printf("%s\n", line.dump().c_str());
      return;
    }
    table_.AddRow({strategy, reference, Cell(d.mean), Cell(d.p90), Cell(d.p99), Cell(d.worst),
                   absl::StrFormat("%.1f %%", 100 * d.above_bound),
                   Cell(d.worst_beside_fill.beside_fill), absl::StrCat(d.worst_beside_fill.seed)});
    for (int64_t i = 1; i <= std::min<int64_t>(options_.worst, std::ssize(ratios)); ++i) {
      const Ratio& ratio = ratios[std::ssize(ratios) - i];
      worst_.AddRow({strategy, reference, absl::StrCat(ratio.seed), Cell(ratio.run),
                     Cell(ratio.busiest_port), Cell(ratio.fill), Cell(ratio.blocking)});
    }
  }

  void Print() const {
    if (options_.json) return;
    std::printf("%s", table_.ToString().c_str());
    if (options_.worst > 0) std::printf("\n%s", worst_.ToString().c_str());
  }

 private:
  const Options& options_;
  TextTable table_{{"STRATEGY", "TO", "MEAN>", "P90>", "P99>", "WORST>", "> 1.005>",
                    "WORST BESIDE FILL>", "SEED>"}};
  TextTable worst_{{"STRATEGY", "TO", "SEED>", "RUN>", "BUSIEST PORT>", "FILL>", "BLOCKING>"}};
};

void Run(const Options& options) {
  const std::vector<std::string> references = options.references();
  std::vector<Ratios> columns(options.strategies.size() * references.size());
  for (uint64_t seed = options.first_seed; std::ssize(columns.front()) < options.instances;
       ++seed) {
    const Ratios ratios = RatiosOf(seed, options);
    for (size_t c = 0; c < ratios.size(); ++c) columns[c].push_back(ratios[c]);
  }
  Report report(options);
  size_t column = 0;
  for (const std::string& strategy : options.strategies) {
    for (const std::string& reference : references) {
      report.Add(strategy, reference, std::move(columns[column++]));
    }
  }
  report.Print();
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  crossmesh::Options options;
  CLI::App app("How near plans come to the bound on random networks, by simulation");
  app.add_option("--instances", options.instances, "Random requests")->check(CLI::PositiveNumber);
  app.add_option("--first-seed", options.first_seed, "Seed of the first of them");
  app.add_option("--chunks", options.chunks, "Of the slowest port in the time of the bound")
      ->check(CLI::PositiveNumber);
  app.add_option("--latency", options.latency,
                 "Of the NICs, at random: all hops of the deepest route at most this part of the "
                 "bound")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--deviation", options.deviation,
                 "Every rate and latency is off by up to this part, at random, from that planned; "
                 "ratios are to the bound of the network as planned")
      ->check(CLI::Range(0.0, 0.5));
  app.add_option("--sharing", options.sharing, "How connections share a port")
      ->check(CLI::IsMember({"equal", "planned"}));
  app.add_option("--strategies", options.strategies, "Strategies, a,b")->delimiter(',');
  app.add_flag("--racks", options.racks, "Some hosts are in racks, with uplinks");
  app.add_option("--worst", options.worst, "List so many requests of each line of the table")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--json", options.json, "One line of JSON per strategy");
  CLI11_PARSE(app, argc, argv);
  crossmesh::Run(options);
}
