#include "planner/network/gpu_steps.h"

#include "common/plan/chunk_periods.h"
#include "planner/network/gpu_costs.h"
#include "planner/network/message_channels.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace crossmesh {
namespace {

// Beyond these a prediction would take too long, or too much memory: steps are taken to be alike.
constexpr int64_t kMessagesMax = int64_t{1} << 21;
constexpr int64_t kCellsMax = int64_t{1} << 21;

// Ports by number: of each device its NIC's and its links' two directions, then racks' uplinks.
class PortNumbers {
 public:
  explicit PortNumbers(const GpuNetwork& network)
      : network_(network), devices_(static_cast<int64_t>(network.host_of.size())) {
    for (const PortRates* const rates : {&network.nics.host_rates, &network.links.host_rates}) {
      rates_.insert(rates_.end(), rates->out.begin(), rates->out.end());
      rates_.insert(rates_.end(), rates->in.begin(), rates->in.end());
    }
    const PortRates& racks = network.nics.rack_rates;
    rates_.insert(rates_.end(), racks.out.begin(), racks.out.end());
    rates_.insert(rates_.end(), racks.in.begin(), racks.in.end());
  }

  int64_t size() const { return static_cast<int64_t>(rates_.size()); }
  // 0: unlimited.
  int64_t rate(int64_t port) const { return rates_[port]; }
  // Is it a GPU's own, and not a rack's?
  bool OfGpu(int64_t port) const { return port < kKinds * devices_; }
  bool OfLinks(int64_t port) const { return OfGpu(port) && port >= 2 * devices_; }

  template <typename Visit>
  void ForEachOf(const Hop& hop, Visit visit) const {
    const int64_t kind = network_.OnOneHost(hop.from, hop.to) ? 2 : 0;
    visit(kind * devices_ + hop.from);
    visit((kind + 1) * devices_ + hop.to);
    if (!network_.nics.CrossesRacks(hop.from, hop.to)) return;
    const auto racks = static_cast<int64_t>(network_.nics.racks.size());
    visit(kKinds * devices_ + network_.nics.rack_of_host[hop.from]);
    visit(kKinds * devices_ + racks + network_.nics.rack_of_host[hop.to]);
  }

 private:
  static constexpr int64_t kKinds = 4;

  const GpuNetwork& network_;
  const int64_t devices_;
  std::vector<int64_t> rates_;
};

// What one port has to do, in one step or in all.
struct PortWork {
  int64_t bytes = 0;
  int64_t channels = 0;  // of all messages
  int64_t messages = 0;

  void Add(const PortWork& other) {
    bytes += other.bytes;
    channels += other.channels;
    messages += other.messages;
  }
};

class StepPredictor {
 public:
  StepPredictor(const GpuNetwork& network, const Routes& routes, std::span<const int64_t> copied,
                const StepSizes& sizes)
      : network_(network),
        routes_(routes),
        ports_(network),
        channels_(network),
        sizes_(sizes),
        devices_(std::ssize(network.host_of)),
        step_seconds_(network.costs.step_seconds()),
        message_seconds_(network.costs.message_seconds()),
        channel_rate_(static_cast<double>(network.costs.channel_bytes_per_second.value)),
        total_(ports_.size()),
        moved_(copied.begin(), copied.end()) {}

  StepsPrediction Predict() && {
    AddTotals();
    const int64_t steps = periods() + depth_;
    const bool is_short =
        prediction_.messages <= kMessagesMax && steps * ports_.size() <= kCellsMax;
    if (prediction_.messages > 0) is_short ? PredictByStep() : PredictAlike(steps);
    for (size_t d = 0; d < moved_.size(); ++d) {
      prediction_.copied_bytes = std::max(prediction_.copied_bytes, moved_[d]);
      prediction_.busiest_seconds =
          std::max(prediction_.busiest_seconds,
                   static_cast<double>(moved_[d]) / static_cast<double>(network_.copy_rates[d]));
    }
    // Copies go beside the messages, in as many steps.
    prediction_.seconds = std::max(prediction_.seconds, prediction_.busiest_seconds);
    if (prediction_.copied_bytes > 0) prediction_.seconds += step_seconds_;
    prediction_.seconds += latency_seconds_;
    return prediction_;
  }

 private:
  int64_t periods() const { return std::max(sizes_.periods, 1); }

  int64_t ChunksOf(const Relay& relay) const {
    return RelayChunks(relay.end - relay.begin, relay.due, sizes_.chunk_bytes, sizes_.periods);
  }

  void AddTotals() {
    std::vector<double> latency(devices_);
    for (const Relay& relay : routes_.relays) {
      const int64_t bytes = relay.end - relay.begin;
      const int64_t chunks = ChunksOf(relay);
      const PortWork work = {
          .bytes = bytes, .channels = chunks * channels_.Of(bytes / chunks), .messages = chunks};
      latency[relay.root] = 0;
      moved_[relay.root] += bytes;
      for (const Hop& hop : routes_.HopsOf(relay)) {
        ports_.ForEachOf(hop, [&](int64_t port) { total_[port].Add(work); });
        moved_[hop.to] += bytes;
        depth_ = std::max<int64_t>(depth_, hop.period);
        prediction_.messages += chunks;
        prediction_.message_bytes += bytes;
        const bool is_inside = network_.OnOneHost(hop.from, hop.to);
        latency[hop.to] =
            latency[hop.from] + (is_inside ? 0 : network_.nics.LatencySeconds(hop.from, hop.to));
        latency_seconds_ = std::max(latency_seconds_, latency[hop.to]);
      }
    }
    for (int64_t port = 0; port < ports_.size(); ++port) {
      if (ports_.rate(port) == PortRates::kUnlimited) continue;
      const double seconds =
          static_cast<double>(total_[port].bytes) / static_cast<double>(ports_.rate(port));
      prediction_.busiest_seconds = std::max(prediction_.busiest_seconds, seconds);
    }
  }

  void PredictByStep() {
    for (const Relay& relay : routes_.relays) AddChunks(relay);
    for (const std::vector<PortWork>& step : steps_) prediction_.seconds += SecondsOf(step);
    prediction_.steps = std::ssize(steps_);
  }

  void AddChunks(const Relay& relay) {
    const int64_t chunks = ChunksOf(relay), bytes = relay.end - relay.begin;
    ChunkPeriods periods(sizes_.periods, sizes_.chunk_bytes);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const int64_t chunk_bytes = bytes * (chunk + 1) / chunks - bytes * chunk / chunks;
      const int64_t period = periods.Next(relay.due.Of(chunk, chunks), chunk_bytes);
      for (const Hop& hop : routes_.HopsOf(relay)) Add(period + hop.period, hop, chunk_bytes);
    }
  }

  void Add(int64_t step, const Hop& hop, int64_t bytes) {
    if (step >= std::ssize(steps_)) {
      steps_.resize(step + 1, std::vector<PortWork>(ports_.size()));
    }
    const PortWork work = {.bytes = bytes, .channels = channels_.Of(bytes), .messages = 1};
    ports_.ForEachOf(hop, [&](int64_t port) { steps_[step][port].Add(work); });
  }

  // Of one step, by port; also notes what it takes of staging.
  double SecondsOf(std::span<const PortWork> step) {
    double seconds = step_seconds_;
    for (int64_t port = 0; port < std::ssize(step); ++port) {
      seconds = std::max(seconds, SecondsOf(port, step[port]));
    }
    for (DeviceRank d = 0; d < devices_; ++d) NoteStepBytes(step, d);
    return seconds;
  }

  double SecondsOf(int64_t port, const PortWork& work) const {
    if (work.bytes == 0 || ports_.rate(port) == PortRates::kUnlimited) return 0;
    auto rate = static_cast<double>(ports_.rate(port));
    double seconds = 0;
    if (ports_.OfGpu(port)) {
      const int64_t most = ports_.OfLinks(port) ? channels_.by_links() : gpu_costs::kChannels;
      const int64_t channels = std::min(work.channels, most);
      rate = std::min(rate, static_cast<double>(channels) * channel_rate_);
      seconds = static_cast<double>(work.messages) * message_seconds_;
    }
    return seconds + static_cast<double>(work.bytes) / rate;
  }

  // Of all that the device sends and receives, which lies in its staging.
  void NoteStepBytes(std::span<const PortWork> step, DeviceRank device) {
    int64_t bytes = 0;
    for (int64_t kind = 0; kind < 4; ++kind) bytes += step[kind * devices_ + device].bytes;
    prediction_.step_bytes = std::max(prediction_.step_bytes, bytes);
  }

  void PredictAlike(int64_t steps) {
    std::vector<PortWork> mean(total_.size());
    const auto part = [this](int64_t total) { return (total + periods() - 1) / periods(); };
    for (size_t port = 0; port < total_.size(); ++port) {
      mean[port] = {.bytes = part(total_[port].bytes),
                    .channels = part(total_[port].channels),
                    .messages = part(total_[port].messages)};
    }
    prediction_.steps = steps;
    prediction_.seconds = static_cast<double>(steps) * SecondsOf(mean);
  }

  const GpuNetwork& network_;
  const Routes& routes_;
  const PortNumbers ports_;
  const MessageChannels channels_;
  const StepSizes sizes_;
  const int64_t devices_;
  const double step_seconds_;
  const double message_seconds_;
  const double channel_rate_;
  std::vector<PortWork> total_;  // by port
  std::vector<int64_t> moved_;   // bytes that a device's kernels read and write
  int64_t depth_ = 0;
  double latency_seconds_ = 0;
  std::vector<std::vector<PortWork>> steps_;  // by step and port
  StepsPrediction prediction_;
};

// The largest part of one relay in one of so many periods, in whole leaves.
int64_t ChunkBytesOf(const Routes& routes, int32_t periods) {
  double most = 1;
  for (const Relay& relay : routes.relays) {
    const double due = static_cast<double>(relay.due.end - relay.due.begin) / DueTime::kParts;
    const double due_periods = std::max(1.0, due * periods);
    most = std::max(most, static_cast<double>(relay.end - relay.begin) / due_periods);
  }
  const int64_t leaves = Plan::LeavesOf(static_cast<int64_t>(std::ceil(most)));
  return std::min(leaves * Plan::kLeafBytes, Plan::kChunkBytesMax);
}

}  // namespace

StepsPrediction PredictSteps(const GpuNetwork& network, const Routes& routes,
                             std::span<const int64_t> copied, const StepSizes& sizes) {
  return StepPredictor(network, routes, copied, sizes).Predict();
}

StepSizes ChooseStepSizes(const GpuNetwork& network, const Routes& routes,
                          std::span<const int64_t> copied, int64_t chunk_bytes) {
  constexpr int32_t kPeriodsMax = 1 << 14;
  constexpr double kWorse = 1.1;  // from here on it only gets worse
  constexpr int64_t kStepBytesMax = gpu_costs::kStagingBytes / gpu_costs::kStepsInStaging;
  StepSizes best;
  double least_seconds = std::numeric_limits<double>::infinity();
  int64_t least_step_bytes = std::numeric_limits<int64_t>::max();
  for (int32_t periods = 1; periods <= kPeriodsMax; periods *= 2) {
    const StepSizes sizes = {
        .chunk_bytes = chunk_bytes > 0 ? chunk_bytes : ChunkBytesOf(routes, periods),
        .periods = periods};
    const StepsPrediction prediction = PredictSteps(network, routes, copied, sizes);
    const bool fits = prediction.step_bytes <= kStepBytesMax;
    // Until one fits, the one that comes nearest is the best.
    const bool better = fits ? prediction.seconds < least_seconds
                             : least_seconds == std::numeric_limits<double>::infinity() &&
                                   prediction.step_bytes < least_step_bytes;
    if (better) {
      best = sizes;
      least_step_bytes = prediction.step_bytes;
      if (fits) least_seconds = prediction.seconds;
    }
    // Ever shorter steps only cost more.
    if (fits && prediction.seconds > kWorse * least_seconds) break;
    if (routes.relays.empty()) break;
  }
  return best;
}

}  // namespace crossmesh
