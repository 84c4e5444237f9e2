#include "planner/network/cheapest_delivery.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <span>
#include <utility>

namespace crossmesh {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int32_t kNoHost = -1;

// A host that could send, and what a copy from it costs beside the receiver's ports.
struct Sender {
  HostRank host = kNoHost;
  int32_t rack = kNoHost;  // index into the search's racks
  bool holds = false;
  double price = kNever;
};

const Sender& Cheaper(const Sender& a, const Sender& b) { return b.price < a.price ? b : a; }

// The two cheapest senders of different racks.
class CrossingSenders {
 public:
  void Add(const Sender& sender) {
    if (sender.rack == best_[0].rack) {
      best_[0] = Cheaper(best_[0], sender);
    } else if (sender.price < best_[0].price) {
      best_[1] = std::exchange(best_[0], sender);
    } else if (sender.price < best_[1].price) {
      best_[1] = sender;
    }
  }
  // To a host of the rack.
  const Sender& To(int32_t rack) const { return best_[0].rack == rack ? best_[1] : best_[0]; }
  const Sender& Cheapest() const { return best_[0]; }

 private:
  std::array<Sender, 2> best_;
};

Sender CheapestOf(std::span<const HostRank> hosts, std::span<const double> prices, int32_t rack,
                  bool holds) {
  Sender best{.rack = rack, .holds = holds};
  for (const HostRank host : hosts) {
    if (prices[host] < best.price) best.host = host, best.price = prices[host];
  }
  return best;
}

Sender Plus(Sender sender, double price) {
  sender.price += price;
  return sender;
}

// The senders of one search. A rack's speaker is the receiver that sends for the others.
class Senders {
 public:
  explicit Senders(size_t racks)
      : holder_(racks), speaker_(racks), crossing_(racks), down_(racks) {}

  // A rack's cheapest holder, its speaker, and the prices of its uplink.
  struct Rack {
    Sender holder;
    Sender speaker;
    double up = 0;
    double down = 0;
  };

  void Set(int32_t index, const Rack& rack) {
    holder_[index] = rack.holder;
    speaker_[index] = rack.speaker;
    down_[index] = rack.down;
    const Sender holder = Plus(rack.holder, rack.up);
    crossing_[index] = Plus(rack.speaker, rack.up);
    out_of_holders_.Add(holder);
    out_of_speakers_.Add(crossing_[index]);
    out_.Add(Cheaper(holder, crossing_[index]));
  }

  // What feeds each rack's speaker, by rack; price kNever where a rack has none.
  std::vector<Sender> FeedSpeakers() const {
    std::vector<Sender> feeder(holder_.size());
    // The hub is the cheapest speaker of all. Feeding the others from it, or from holders, cannot
    // make a circle as long as the hub itself is fed by a holder.
    const Sender hub = out_of_speakers_.Cheapest();
    for (const Sender& speaker : speaker_) {
      if (speaker.host == kNoHost) continue;
      const int32_t rack = speaker.rack;
      feeder[rack] =
          rack == hub.rack ? FromHolder(rack) : Cheaper(FromHolder(rack), Plus(hub, down_[rack]));
    }
    // The hub may have its byte from another speaker, which then has it from a holder.
    double least = feeder[hub.rack].price;
    Sender before_hub;
    for (const Sender& speaker : crossing_) {
      if (speaker.host == kNoHost || speaker.rack == hub.rack) continue;
      const double more = FromHolder(speaker.rack).price - feeder[speaker.rack].price;
      const double price = more + speaker.price + down_[hub.rack];
      if (price < least) least = price, before_hub = speaker;
    }
    if (before_hub.host != kNoHost) {
      feeder[hub.rack] = Plus(before_hub, down_[hub.rack]);
      feeder[before_hub.rack] = FromHolder(before_hub.rack);
    }
    return feeder;
  }

  // What feeds the rack's other receivers.
  Sender FeedOthers(int32_t rack) const {
    return Cheaper(Cheaper(holder_[rack], speaker_[rack]), Plus(out_.To(rack), down_[rack]));
  }

  HostRank SpeakerOf(int32_t rack) const { return speaker_[rack].host; }

 private:
  Sender FromHolder(int32_t rack) const {
    return Cheaper(holder_[rack], Plus(out_of_holders_.To(rack), down_[rack]));
  }

  std::vector<Sender> holder_;
  std::vector<Sender> speaker_;
  std::vector<Sender> crossing_;  // speakers, as senders to other racks
  std::vector<double> down_;
  CrossingSenders out_of_holders_;
  CrossingSenders out_of_speakers_;
  CrossingSenders out_;
};

// Orders hops from `from` to `to` so that parents come first, and finds their roots.
class HopOrder {
 public:
  explicit HopOrder(std::vector<HostHop>& hops) : hops_(hops) { hops_.clear(); }

  void AddSpeakers(const Senders& senders, std::span<const Sender> feeders) {
    root_of_rack_.assign(feeders.size(), kNoHost);
    // From holders, from speakers fed by holders, and from those that these feed: three levels.
    for (int level = 0; level < 3; ++level) {
      for (size_t rack = 0; rack < feeders.size(); ++rack) {
        if (feeders[rack].host == kNoHost || root_of_rack_[rack] != kNoHost) continue;
        root_of_rack_[rack] = RootOf(feeders[rack]);
        if (root_of_rack_[rack] == kNoHost) continue;
        Add(feeders[rack], senders.SpeakerOf(static_cast<int32_t>(rack)));
      }
    }
  }

  void Add(const Sender& sender, HostRank to) {
    hops_.push_back({.root = RootOf(sender), .from = sender.host, .to = to});
  }

  void Finish() {
    // Stable, so that parents stay before their children within each root.
    std::ranges::stable_sort(hops_, {}, [](const HostHop& hop) { return hop.root; });
  }

 private:
  HostRank RootOf(const Sender& sender) const {
    return sender.holds ? sender.host : root_of_rack_[sender.rack];
  }

  std::vector<HostHop>& hops_;
  std::vector<HostRank> root_of_rack_;  // of its speaker's byte
};

}  // namespace

DeliverySearch::DeliverySearch(const Demands& demands, const Demand& demand,
                               const HostNetwork& network) {
  // Ascending by number, so that equal prices are settled alike in every run.
  std::map<int32_t, Rack> racks;
  for (const HostRank h : demands.holders(demand)) {
    racks[network.rack_of_host[h]].holders.push_back(h);
  }
  for (const HostRank h : demands.receivers(demand)) {
    racks[network.rack_of_host[h]].receivers.push_back(h);
  }
  for (auto& [number, rack] : racks) {
    rack.number = number;
    racks_.push_back(std::move(rack));
  }
}

double DeliverySearch::Cheapest(const PortPrices& prices, std::vector<HostHop>& hops) const {
  Senders senders(racks_.size());
  for (size_t i = 0; i < racks_.size(); ++i) {
    const Rack& rack = racks_[i];
    const int32_t index = static_cast<int32_t>(i);
    senders.Set(index,
                {.holder = CheapestOf(rack.holders, prices.host_out, index, /*holds=*/true),
                 .speaker = CheapestOf(rack.receivers, prices.host_out, index, /*holds=*/false),
                 .up = prices.rack_up[rack.number],
                 .down = prices.rack_down[rack.number]});
  }
  const std::vector<Sender> feeders = senders.FeedSpeakers();
  HopOrder order(hops);
  order.AddSpeakers(senders, feeders);
  double price = 0;
  for (size_t i = 0; i < racks_.size(); ++i) {
    if (racks_[i].receivers.empty()) continue;
    const HostRank speaker = senders.SpeakerOf(static_cast<int32_t>(i));
    const Sender feeder_of_others = senders.FeedOthers(static_cast<int32_t>(i));
    price += feeders[i].price;
    for (const HostRank host : racks_[i].receivers) {
      price += prices.host_in[host];
      if (host == speaker) continue;
      price += feeder_of_others.price;
      order.Add(feeder_of_others, host);
    }
  }
  order.Finish();
  return price;
}

}  // namespace crossmesh
