#include "planner/pipeline/shared_rank_bound.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace crossmesh {
namespace {

constexpr double kNoBound = std::numeric_limits<double>::infinity();

// Work that holds memory, for one microbatch.
struct HeldWork {
  ByteCount bytes;
  double seconds = 0;

  double rate() const {
    return bytes == ByteCount(0) ? kNoBound : seconds / static_cast<double>(bytes.value());
  }
};

// An op that can begin then.
struct Arrival {
  double seconds = 0;
  double op = 0;
};

class SharedRankBound {
 public:
  explicit SharedRankBound(const SharedRank& rank) : rank_(rank) {}

  double Ramps() const {
    const double filling = FillingIdle(), emptying = EmptyingIdle();
    const double tail = std::max(0.0, Least(&SharedStage::tail) - DelayedSeconds());
    // When all microbatches fit, the last forward op may begin before the first gradient is back.
    const double idle =
        MayHoldAll() ? std::max(filling + tail, emptying) : filling + std::max(emptying, tail);
    return Least(&SharedStage::head) + rank_.work + idle;
  }

 private:
  double Least(double SharedStage::* of) const {
    return (*std::ranges::min_element(rank_.stages, {}, of)).*of;
  }

  bool MayHoldAll() const {
    if (!rank_.room) return true;
    ByteCount all;
    for (const SharedStage& stage : rank_.stages) all += rank_.microbatches * stage.bytes();
    return all <= *rank_.room;
  }

  // The most work of which all can be held at once, as if it could be had in parts.
  double MostHeld(std::vector<HeldWork> works) const {
    std::ranges::sort(works, std::ranges::greater(), &HeldWork::rate);
    double room = rank_.room ? static_cast<double>(rank_.room->value()) : kNoBound;
    double seconds = 0;
    for (const HeldWork& work : works) {
      double count = rank_.microbatches;
      const auto bytes = static_cast<double>(work.bytes.value());
      if (bytes > 0 && count * bytes > room) count = room / bytes;
      seconds += count * work.seconds;
      if (bytes > 0) room -= count * bytes;
    }
    return seconds;
  }

  // The most work that can be done by then of ops that come one after the other.
  static double MostDone(const std::vector<Arrival>& arrivals, double end) {
    double at = 0, done = 0;
    for (const Arrival& arrival : arrivals) {
      at = std::max(at, arrival.seconds);
      if (at >= end) break;
      const double part = std::min(arrival.op, end - at);
      done += part;
      at += part;
    }
    return done;
  }

  // Of each stage and microbatch: a way, and a pace.
  std::vector<Arrival> ArrivalsOf(double SharedStage::* way, double SharedStage::* pace,
                                  double SharedStage::* op) const {
    std::vector<Arrival> arrivals;
    for (const SharedStage& stage : rank_.stages) {
      for (int32_t m = 0; m < rank_.microbatches; ++m) {
        arrivals.push_back({stage.*way + m * (stage.*pace), stage.*op});
      }
    }
    std::ranges::sort(arrivals, {}, &Arrival::seconds);
    return arrivals;
  }

  // How long the rank waits before its first backward op.
  double FillingIdle() const {
    double back = kNoBound;  // when that can begin
    std::vector<HeldWork> forward;
    for (const SharedStage& stage : rank_.stages) {
      back = std::min(back, stage.head + stage.gap);
      forward.push_back({stage.bytes(), stage.forward});
    }
    const std::vector<Arrival> arrivals =
        ArrivalsOf(&SharedStage::head, &SharedStage::head_pace, &SharedStage::forward);
    const double busy = std::min(MostHeld(std::move(forward)), MostDone(arrivals, back));
    return std::max(0.0, back - Least(&SharedStage::head) - busy);
  }

  // How long it waits after its last forward op.
  double EmptyingIdle() const {
    std::vector<HeldWork> works;
    for (const SharedStage& stage : rank_.stages) {
      works.push_back({stage.bytes(), stage.backward + stage.weights});
      if (rank_.is_split) works.push_back({stage.weights_bytes, stage.weights});
    }
    const double held = MostHeld(std::move(works)), delayed = DelayedSeconds();
    // Seen from the end: a backward op ends before the way that its gradient has to go.
    const std::vector<Arrival> arrivals =
        ArrivalsOf(&SharedStage::tail, &SharedStage::tail_pace, &SharedStage::backward);
    double idle = kNoBound;
    for (const SharedStage& last : rank_.stages) {
      const double left = last.round_trip + last.tail - last.forward;
      const double busy = std::min(held, MostDone(arrivals, left) + delayed);
      idle = std::min(idle, left - busy);
    }
    return std::max(0.0, idle);
  }

  // The gradients of the weights that its memory holds.
  double DelayedSeconds() const {
    if (!rank_.is_split) return 0;
    std::vector<HeldWork> weights;
    for (const SharedStage& stage : rank_.stages) {
      weights.push_back({stage.weights_bytes, stage.weights});
    }
    return MostHeld(std::move(weights));
  }

  const SharedRank& rank_;
};

}  // namespace

double RampsOfSharedRank(const SharedRank& rank) { return SharedRankBound(rank).Ramps(); }

double WindowOfSharedRank(const SharedRank& rank) {
  if (!rank.room) return 0;
  double held = 0;   // bytes, for so long
  int64_t unit = 0;  // what is held at once is a multiple of it
  double head = kNoBound, tail = kNoBound;
  for (const SharedStage& stage : rank.stages) {
    held +=
        static_cast<double>(stage.backward_bytes.value()) * stage.round_trip +
        static_cast<double>(stage.weights_bytes.value()) * (stage.round_trip + stage.least_weights);
    unit = std::gcd(unit, std::gcd(stage.backward_bytes.value(), stage.weights_bytes.value()));
    head = std::min(head, stage.head);
    tail = std::min(tail, stage.tail);
  }
  const int64_t room = rank.room->value();
  const int64_t used = rank.is_uniform && unit > 0 ? room / unit * unit : room;
  if (used <= 0) return 0;
  // Gradients of the weights may come while the tail runs on other ranks.
  return head + rank.microbatches * held / static_cast<double>(used) + (rank.is_split ? 0 : tail);
}

}  // namespace crossmesh
