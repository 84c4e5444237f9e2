#include "client/drawing/timeline.h"

#include <algorithm>
#include <utility>

#include <absl/container/flat_hash_map.h>

namespace crossmesh {
namespace {

// A chunk at least so long is a bar of its own.
constexpr double kChunkPixels = 5;
// What is closer together is one bar.
constexpr double kGapPixels = 0.5;
constexpr int32_t kNoRow = CriticalSpan::kNoRow;

class TimelineMaker {
 public:
  TimelineMaker(const DrawnPlan& drawn, double pixel_seconds)
      : drawn_(drawn), run_(drawn.simulated().run), pixel_seconds_(pixel_seconds) {}

  Timeline Run() && {
    ChooseRows();
    ChooseLanes();
    // Coarser and coarser, until a file of the picture stays small: all bars of a colour in a lane
    // become one at last.
    for (double pixels = 1; !AddBars(pixels); pixels *= 2) {
    }
    RateLanes();
    AddCriticalSpans();
    return std::move(timeline_);
  }

 private:
  // All that carried something, in the order of rows.
  std::vector<int32_t> UsedPorts() const {
    std::vector<int32_t> ports;
    for (const DrawnHost& host : drawn_.hosts()) {
      const auto in = drawn_.ports().in(host.host), out = drawn_.ports().out(host.host);
      for (size_t nic = 0; nic < in.size(); ++nic) {
        ports.push_back(in[nic]);
        ports.push_back(out[nic]);
      }
    }
    for (size_t port = 0; port < run_.ports.size(); ++port) {
      const PortPrice::Port kind = run_.ports[port].kind;
      if (kind == PortPrice::Port::kHostOut || kind == PortPrice::Port::kHostIn) continue;
      ports.push_back(static_cast<int32_t>(port));
    }
    std::erase_if(ports, [this](int32_t port) { return run_.port_bytes[port] == 0; });
    return ports;
  }

  void ChooseRows() {
    const std::vector<int32_t> ports = UsedPorts();
    std::vector<int32_t> busiest = ports;
    std::ranges::stable_sort(busiest, std::ranges::greater(),
                             [this](int32_t port) { return drawn_.UseOf(port); });
    busiest.resize(std::min(busiest.size(), Timeline::kRowsMax));
    timeline_.ports_left_out = ports.size() - busiest.size();
    row_of_port_.assign(run_.ports.size(), kNoRow);
    for (const int32_t port : busiest) row_of_port_[port] = 0;
    for (const int32_t port : ports) {
      if (row_of_port_[port] == kNoRow) continue;
      row_of_port_[port] = static_cast<int32_t>(timeline_.rows.size());
      timeline_.rows.push_back({.port = port});
    }
    lanes_.resize(timeline_.rows.size());
  }

  template <typename Visit>
  void ForEachRow(const SimulatedTransfer& t, Visit visit) {
    const Plan& plan = drawn_.simulated().plan;
    const Hop& hop = plan.hops()[t.hop];
    for (const int32_t port : drawn_.ports().Path(plan.tensors().host_of(hop.from), t.out_port,
                                                  plan.tensors().host_of(hop.to), t.in_port)) {
      if (row_of_port_[port] != kNoRow) visit(row_of_port_[port]);
    }
  }

  // Colour, and the NIC at the other end; of what passes a rack's uplink, the one where it leaves
  // or enters.
  std::pair<int32_t, int32_t> LaneKey(int32_t row, const SimulatedTransfer& t) const {
    const int32_t port = timeline_.rows[row].port;
    const bool is_source =
        port == t.out_port || run_.ports[port].kind == PortPrice::Port::kRackDown;
    return {drawn_.ColourOf(t.relay), is_source ? t.in_port : t.out_port};
  }

  void ChooseLanes() {
    for (const SimulatedTransfer& t : run_.transfers) {
      ForEachRow(t, [&](int32_t row) {
        const auto next =
            std::min<int32_t>(static_cast<int32_t>(lanes_[row].size()), TimelineRow::kLanesMax - 1);
        const int32_t lane = lanes_[row].try_emplace(LaneKey(row, t), next).first->second;
        std::vector<double>& bytes = timeline_.rows[row].lanes;
        bytes.resize(std::max(bytes.size(), static_cast<size_t>(lane) + 1));
        bytes[lane] += drawn_.TransferBytes(t);
      });
    }
  }

  // Bytes become parts of the rate: those that pass while a bar lasts.
  void RateLanes() {
    for (TimelineRow& row : timeline_.rows) {
      std::vector<double> seconds(row.lanes.size());
      for (const TimelineBar& bar : row.bars) seconds[bar.lane] += bar.end - bar.begin;
      for (size_t lane = 0; lane < row.lanes.size(); ++lane) {
        const double full = seconds[lane] * run_.ports[row.port].bytes_per_second;
        row.lanes[lane] = full > 0 ? std::min(1.0, row.lanes[lane] / full) : 0;
      }
    }
  }

  int32_t LaneOf(int32_t row, const SimulatedTransfer& t) const {
    return lanes_[row].at(LaneKey(row, t));
  }

  static double LatencyOf(const SimulatedTransfer& t) { return t.arrival_seconds - t.end_seconds; }

  // False when there are too many: chunks and gaps are to be seen only if they are longer. At last
  // each colour of each lane is one bar.
  bool AddBars(double pixels) {
    const double chunk = kChunkPixels * pixels * pixel_seconds_;
    const double gap = kGapPixels * pixels * pixel_seconds_;
    const size_t colours = drawn_.legend().size();
    size_t bars = 0;
    for (TimelineRow& row : timeline_.rows) row.bars.clear();
    // By row, then lane and colour: the index of a bar.
    std::vector<std::vector<size_t>> last(
        timeline_.rows.size(), std::vector<size_t>(TimelineRow::kLanesMax * colours, kNone));
    for (const SimulatedTransfer& t : run_.transfers) {
      const int32_t colour = drawn_.ColourOf(t.relay);
      ForEachRow(t, [&](int32_t row) {
        std::vector<TimelineBar>& all = timeline_.rows[row].bars;
        const int32_t lane = LaneOf(row, t);
        const double latency = timeline_.rows[row].port == t.in_port ? LatencyOf(t) : 0;
        const double begin = t.begin_seconds + latency, end = t.end_seconds + latency;
        size_t& before = last[row][static_cast<size_t>(lane) * colours + colour];
        if (before != kNone && begin - all[before].end <= gap && end - begin < chunk) {
          all[before].begin = std::min(all[before].begin, begin);
          all[before].end = end;
          return;
        }
        before = all.size();
        all.push_back({begin, end, lane, colour});
        ++bars;
      });
      if (bars > Timeline::kBarsMax) return false;
    }
    for (TimelineRow& row : timeline_.rows) {
      std::ranges::stable_sort(row.bars, {},
                               [](const TimelineBar& b) { return std::pair(b.lane, b.begin); });
    }
    return true;
  }

  void AddCriticalSpans() {
    const SimulatedTransfer* last = nullptr;
    for (const int64_t number : run_.CriticalChain()) {
      const SimulatedTransfer& t = run_.transfers[number];
      if (last != nullptr && last->out_port == t.out_port && last->in_port == t.in_port) {
        timeline_.critical.back().end = t.end_seconds;
      } else {
        CriticalSpan span{.out_row = row_of_port_[t.out_port],
                          .in_row = row_of_port_[t.in_port],
                          .begin = t.begin_seconds,
                          .end = t.end_seconds,
                          .latency = LatencyOf(t)};
        if (span.out_row != kNoRow) span.out_lane = LaneOf(span.out_row, t);
        if (span.in_row != kNoRow) span.in_lane = LaneOf(span.in_row, t);
        timeline_.critical.push_back(span);
      }
      last = &t;
    }
  }

  static constexpr size_t kNone = static_cast<size_t>(-1);

  const DrawnPlan& drawn_;
  const SimulatedTimeline& run_;
  const double pixel_seconds_;
  std::vector<int32_t> row_of_port_;
  std::vector<absl::flat_hash_map<std::pair<int32_t, int32_t>, int32_t>> lanes_;  // by row
  Timeline timeline_;
};

}  // namespace

Timeline MakeTimeline(const DrawnPlan& drawn, double pixel_seconds) {
  return TimelineMaker(drawn, pixel_seconds).Run();
}

}  // namespace crossmesh
