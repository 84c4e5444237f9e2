#include "planner/network/simulator.h"

#include "common/base/status_macros.h"
#include "planner/network/host_network.h"
#include "planner/network/nic_lanes.h"
#include "planner/network/port_sharing.h"

#include <algorithm>
#include <queue>
#include <span>
#include <tuple>
#include <utility>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kNone = SimulatedTransfer::kNone;
// What ends within this part of the present time ends now: rounding must not tear apart what
// belongs together.
constexpr double kSameTime = 1e-12;
// How many transfers are simulated between two checks for cancellation.
constexpr int64_t kCheckInterval = 4096;

// A hop between hosts, on its way.
struct Stream {
  int64_t relay = 0;
  int64_t hop = 0;
  int32_t place = 0;
  DueTime due;
  int64_t chunks = 0;
  double chunk_bytes = 0;
  std::vector<int32_t> connections;  // by chunk; only one when all go the same way
  std::vector<int64_t> children;     // streams that forward what this one brings

  int32_t ConnectionOf(int64_t chunk) const {
    return connections[connections.size() == 1 ? 0 : chunk];
  }
};

// A chunk that its sender has. Ordered for a queue that gives the last one: what is due first.
struct ReadyChunk {
  int64_t stream = 0;
  int32_t due = 0;
  int32_t place = 0;
  int64_t chunk = 0;
  int64_t after = kNone;

  friend bool operator<(const ReadyChunk& a, const ReadyChunk& b) {
    return std::tuple(a.due, a.place, a.chunk) > std::tuple(b.due, b.place, b.chunk);
  }
};

struct Connection {
  int32_t out_port = 0;
  int32_t in_port = 0;
  double latency_seconds = 0;
  std::vector<int32_t> path;
  double planned_bytes = 0;
  std::priority_queue<ReadyChunk> ready;
  bool busy = false;
  ReadyChunk present;
  double begin_seconds = 0;
  double left_bytes = 0;      // of the present chunk, when it was last looked at,
  double looked_seconds = 0;  // which was then
  double rate = 0;
  uint32_t changes = 0;  // of the rate; what was expected before is void
};

struct ExpectedEnd {
  double seconds = 0;
  int32_t connection = 0;
  uint32_t changes = 0;

  friend bool operator<(const ExpectedEnd& a, const ExpectedEnd& b) {
    return std::pair(a.seconds, a.connection) > std::pair(b.seconds, b.connection);
  }
};

// A chunk that has left its sender, and is to be forwarded when it is there.
struct ExpectedArrival {
  double seconds = 0;
  int64_t stream = 0;
  int64_t chunk = 0;
  int64_t transfer = kNone;

  friend bool operator<(const ExpectedArrival& a, const ExpectedArrival& b) {
    return std::tuple(a.seconds, a.stream, a.chunk) > std::tuple(b.seconds, b.stream, b.chunk);
  }
};

// Which connection every chunk takes: made once, before the execution. A chunk takes the lane that
// is furthest behind its part of the bytes between the two hosts.
class Lanes {
 public:
  Lanes(const TensorTable& tensors, const NicPorts& ports) : tensors_(tensors), ports_(ports) {}

  void Assign(const Hop& hop, Stream& stream) {
    HostPair& pair = Find(tensors_.host_of(hop.from), tensors_.host_of(hop.to));
    const bool one_way = pair.lanes.size() == 1;
    for (int64_t c = 0; c < (one_way ? 1 : stream.chunks); ++c) {
      const double bytes = stream.chunk_bytes * static_cast<double>(one_way ? stream.chunks : 1);
      stream.connections.push_back(Take(pair, bytes));
    }
  }
  std::vector<Connection> Finish() && { return std::move(connections_); }

 private:
  struct Lane {
    NicLane nics;
    double bytes = 0;                // that it has
    int32_t connection = kUnopened;  // number
  };
  struct HostPair {
    HostRank from = 0;
    HostRank to = 0;
    std::vector<Lane> lanes;
    double bytes = 0;  // of all lanes
  };
  static constexpr int32_t kUnopened = -1;

  HostPair& Find(HostRank from, HostRank to) {
    const auto [found, is_new] = pairs_.try_emplace({from, to});
    if (is_new) {
      found->second = {.from = from, .to = to};
      for (const NicLane& nics : LanesBetween(ports_, from, to)) {
        found->second.lanes.push_back({.nics = nics});
      }
    }
    return found->second;
  }

  int32_t Take(HostPair& pair, double bytes) {
    pair.bytes += bytes;
    Lane& lane = *std::ranges::max_element(
        pair.lanes, {}, [&pair](const Lane& l) { return l.nics.part * pair.bytes - l.bytes; });
    lane.bytes += bytes;
    if (lane.connection == kUnopened) {
      lane.connection = static_cast<int32_t>(connections_.size());
      connections_.push_back(
          {.out_port = lane.nics.out_port,
           .in_port = lane.nics.in_port,
           .latency_seconds = ports_.LatencySeconds(lane.nics.out_port, lane.nics.in_port),
           .path = ports_.Path(pair.from, lane.nics.out_port, pair.to, lane.nics.in_port)});
    }
    connections_[lane.connection].planned_bytes += bytes;
    return lane.connection;
  }

  const TensorTable& tensors_;
  const NicPorts& ports_;
  std::vector<Connection> connections_;
  absl::flat_hash_map<std::pair<HostRank, HostRank>, HostPair> pairs_;
};

// The hops between hosts; hops inside a host hand on what has come to it.
absl::StatusOr<std::vector<Stream>> MakeStreams(const Plan& plan, int64_t transfers_max,
                                                Lanes& lanes) {
  std::vector<Stream> streams;
  std::vector<int64_t> stream_to(plan.tensors().devices().size());  // of the present relay
  int64_t transfers = 0;
  for (size_t r = 0; r < plan.relays().size(); ++r) {
    const Relay& relay = plan.relays()[r];
    const int64_t bytes = relay.end - relay.begin;
    const int64_t chunks = RelayChunks(bytes, relay.due, plan.chunk_bytes(), plan.periods());
    stream_to[relay.root] = kNone;
    for (int64_t h = relay.first_hop; h < relay.first_hop + relay.hop_count; ++h) {
      const Hop& hop = plan.hops()[h];
      stream_to[hop.to] = stream_to[hop.from];
      if (plan.tensors().host_of(hop.from) == plan.tensors().host_of(hop.to)) continue;
      transfers += chunks;
      if (transfers > transfers_max) {
        return absl::ResourceExhaustedError(
            absl::StrCat("simulation: expected at most ", transfers_max,
                         " chunks between hosts, found more; larger chunks make fewer of them"));
      }
      Stream stream{.relay = static_cast<int64_t>(r),
                    .hop = h,
                    .place = hop.place,
                    .due = relay.due,
                    .chunks = chunks,
                    .chunk_bytes = static_cast<double>(bytes) / static_cast<double>(chunks)};
      lanes.Assign(hop, stream);
      const auto number = static_cast<int64_t>(streams.size());
      if (stream_to[hop.from] != kNone) streams[stream_to[hop.from]].children.push_back(number);
      stream_to[hop.to] = number;
      streams.push_back(std::move(stream));
    }
  }
  return streams;
}

class Simulation {
 public:
  Simulation(const NicPorts& ports, const SimulatorOptions& options, std::vector<Stream> streams,
             std::vector<Connection> connections)
      : options_(options),
        streams_(std::move(streams)),
        connections_(std::move(connections)),
        sharing_(RatesOf(ports)) {
    run_.ports = ports.ports();
    run_.port_bytes.resize(run_.ports.size());
    for (const Connection& connection : connections_) {
      const bool planned = options.sharing == PortSharingRule::kPlanned;
      sharing_.AddFlow(connection.path, planned ? connection.planned_bytes : 1);
      for (const int32_t port : connection.path) run_.port_bytes[port] += connection.planned_bytes;
    }
  }

  absl::StatusOr<SimulatedTimeline> Run(CancelCheck cancelled) && {
    MakeRootsReady();
    for (int64_t ended = 0; Settle(); ++ended) {
      if (ended % kCheckInterval == 0) RETURN_IF_ERROR(CheckWanted(cancelled));
      now_ = NextSeconds();
      while (IsNow(ends_)) {
        const ExpectedEnd end = ends_.top();
        ends_.pop();
        if (end.changes == connections_[end.connection].changes) Finish(end.connection);
      }
      while (IsNow(arrivals_)) {
        const ExpectedArrival arrival = arrivals_.top();
        arrivals_.pop();
        Forward(streams_[arrival.stream], arrival.chunk, arrival.transfer);
      }
    }
    return std::move(run_);
  }

 private:
  static std::vector<double> RatesOf(const NicPorts& ports) {
    std::vector<double> rates;
    for (const NetworkPort& port : ports.ports()) rates.push_back(port.bytes_per_second);
    return rates;
  }

  // Those that no host brings.
  void MakeRootsReady() {
    std::vector<bool> brought(streams_.size(), false);
    for (const Stream& stream : streams_) {
      for (const int64_t child : stream.children) brought[child] = true;
    }
    for (size_t s = 0; s < streams_.size(); ++s) {
      if (brought[s]) continue;
      for (int64_t chunk = 0; chunk < streams_[s].chunks; ++chunk) {
        MakeReady(static_cast<int64_t>(s), chunk, kNone);
      }
    }
    for (size_t c = 0; c < connections_.size(); ++c) StartNext(static_cast<int32_t>(c), kNone);
  }

  void MakeReady(int64_t stream, int64_t chunk, int64_t after) {
    const Stream& of = streams_[stream];
    connections_[of.ConnectionOf(chunk)].ready.push({.stream = stream,
                                                     .due = of.due.Of(chunk, of.chunks),
                                                     .place = of.place,
                                                     .chunk = chunk,
                                                     .after = after});
  }

  // `before`: the transfer that kept the connection busy until now, if one did.
  void StartNext(int32_t number, int64_t before) {
    Connection& connection = connections_[number];
    if (connection.busy) return;
    connection.busy = !connection.ready.empty();
    sharing_.SetActive(number, connection.busy);
    if (!connection.busy) return;
    connection.present = connection.ready.top();
    connection.ready.pop();
    if (before != kNone) connection.present.after = before;
    connection.begin_seconds = connection.looked_seconds = now_;
    connection.left_bytes = streams_[connection.present.stream].chunk_bytes;
    // The connection may have its rate already, and keep it.
    if (connection.rate > 0) Expect(number);
  }

  void Expect(int32_t number) {
    const Connection& connection = connections_[number];
    ends_.push({.seconds = now_ + connection.left_bytes / connection.rate,
                .connection = number,
                .changes = connection.changes});
  }

  // Of what is expected, which must be something.
  double NextSeconds() const {
    if (ends_.empty()) return arrivals_.top().seconds;
    if (arrivals_.empty()) return ends_.top().seconds;
    return std::min(ends_.top().seconds, arrivals_.top().seconds);
  }

  template <typename Expected>
  bool IsNow(const std::priority_queue<Expected>& expected) const {
    return !expected.empty() && expected.top().seconds <= now_ * (1 + kSameTime);
  }

  // Brings rates and expectations up to date. False: nothing is on its way any more.
  bool Settle() {
    sharing_.Settle([this](int32_t number) {
      Connection& connection = connections_[number];
      const double rate = sharing_.rate(number);
      if (rate == connection.rate) return;
      // What was sent at the old rate must be settled before the new one counts.
      connection.left_bytes -= connection.rate * (now_ - connection.looked_seconds);
      connection.left_bytes = std::max(connection.left_bytes, 0.0);
      connection.looked_seconds = now_;
      connection.rate = rate;
      ++connection.changes;
      Expect(number);
    });
    while (!ends_.empty() && ends_.top().changes != connections_[ends_.top().connection].changes) {
      ends_.pop();
    }
    return !ends_.empty() || !arrivals_.empty();
  }

  void Finish(int32_t number) {
    Connection& connection = connections_[number];
    const ReadyChunk chunk = connection.present;
    const Stream& stream = streams_[chunk.stream];
    const double arrival = now_ + connection.latency_seconds;
    run_.seconds = std::max(run_.seconds, arrival);
    int64_t transfer = kNone;
    if (options_.keep_transfers) {
      transfer = static_cast<int64_t>(run_.transfers.size());
      run_.transfers.push_back({.relay = stream.relay,
                                .hop = stream.hop,
                                .chunk = chunk.chunk,
                                .out_port = connection.out_port,
                                .in_port = connection.in_port,
                                .begin_seconds = connection.begin_seconds,
                                .end_seconds = now_,
                                .arrival_seconds = arrival,
                                .after = chunk.after});
    }
    connection.busy = false;
    StartNext(number, transfer);
    if (!connection.busy) {
      connection.rate = 0;
      ++connection.changes;
    }
    // Without latency the chunk is there at once: forwarding it now spares the queue of arrivals.
    if (connection.latency_seconds == 0) return Forward(stream, chunk.chunk, transfer);
    if (stream.children.empty()) return;
    arrivals_.push(
        {.seconds = arrival, .stream = chunk.stream, .chunk = chunk.chunk, .transfer = transfer});
  }

  void Forward(const Stream& stream, int64_t chunk, int64_t transfer) {
    for (const int64_t child : stream.children) {
      MakeReady(child, chunk, transfer);
      StartNext(streams_[child].ConnectionOf(chunk), kNone);
    }
  }

  const SimulatorOptions options_;
  const std::vector<Stream> streams_;
  std::vector<Connection> connections_;
  PortSharing sharing_;
  std::priority_queue<ExpectedEnd> ends_;
  std::priority_queue<ExpectedArrival> arrivals_;
  double now_ = 0;
  SimulatedTimeline run_;
};

}  // namespace

std::vector<int64_t> SimulatedTimeline::CriticalChain() const {
  auto last = static_cast<int64_t>(transfers.size()) - 1;
  for (int64_t i = last; i >= 0; --i) {
    if (transfers[i].arrival_seconds > transfers[last].arrival_seconds) last = i;
  }
  std::vector<int64_t> chain;
  for (int64_t at = last; at >= 0; at = transfers[at].after) chain.push_back(at);
  std::ranges::reverse(chain);
  return chain;
}

absl::StatusOr<SimulatedTimeline> Simulate(const Plan& plan, const Topology& topology,
                                           const SimulatorOptions& options, CancelCheck cancelled) {
  if (plan.has_courses()) {
    return absl::UnimplementedError(
        "simulation: expected a plan of relays, found one of courses; its steps can be simulated "
        "one by one");
  }
  const NicPorts ports(HostNetworkOf(plan.tensors(), topology), topology);
  Lanes lanes(plan.tensors(), ports);
  ASSIGN_OR_RETURN(std::vector<Stream> streams, MakeStreams(plan, options.transfers_max, lanes));
  return Simulation(ports, options, std::move(streams), std::move(lanes).Finish()).Run(cancelled);
}

}  // namespace crossmesh
