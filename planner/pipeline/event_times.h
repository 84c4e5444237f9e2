#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace crossmesh {

// When each of some sources has its next event, and which is the first of them. A tournament: which
// event comes next is as good as random, and a heap would guess wrong at every level.
// Thread-compatible.
class EventTimes {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  enum class Ties : uint8_t {
    kByNumber,  // of events at one time that of the lowest source is the first
    kByPlace,   // that of the lowest place is, and of these that of the lowest source
  };

  explicit EventTimes(int32_t sources, Ties ties = Ties::kByNumber)
      : leaves_(std::bit_ceil(static_cast<size_t>(std::max(sources, 1)))),
        nodes_(2 * leaves_),
        places_(ties == Ties::kByPlace ? leaves_ : 0) {
    for (size_t i = 0; i < leaves_; ++i) nodes_[leaves_ + i].source = i;
    for (size_t i = leaves_ - 1; i > 0; --i) nodes_[i] = nodes_[2 * i];
  }

  // `seconds`: at least 0; kNever: it has none any more. Cost: logarithmic.
  void Set(int32_t source, double seconds, double place = 0) {
    size_t at = leaves_ + source;
    // Numbers from 0 on are in the same order as their bits; this makes 0 of -0.
    Event first = {std::bit_cast<uint64_t>(seconds + 0.0), static_cast<uint64_t>(source)};
    nodes_[at] = first;
    if (!places_.empty()) places_[source] = place;
    for (; at > 1; at /= 2) {
      const Event& other = nodes_[at ^ 1];
      // Of equal ones the left one, which has an even number. Masks instead of a choice, so that
      // nothing has to be guessed.
      const uint64_t is_left = 1 - at % 2;
      bool is_before = first.time < other.time + is_left;
      if (!places_.empty() && first.time == other.time) is_before = IsPlacedBefore(first, other);
      const uint64_t mask = uint64_t{0} - uint64_t{is_before};
      first.time = (first.time & mask) | (other.time & ~mask);
      first.source = (first.source & mask) | (other.source & ~mask);
      nodes_[at / 2] = first;
    }
  }

  double of(int32_t source) const { return SecondsOf(nodes_[leaves_ + source]); }
  // Of all; kNever: there is none.
  double next() const { return SecondsOf(nodes_[1]); }
  int32_t first() const { return static_cast<int32_t>(nodes_[1].source); }

 private:
  struct Event {
    uint64_t time = std::bit_cast<uint64_t>(kNever);
    uint64_t source = 0;
  };

  bool IsPlacedBefore(const Event& a, const Event& b) const {
    const double place_of_a = places_[a.source], place_of_b = places_[b.source];
    return place_of_a != place_of_b ? place_of_a < place_of_b : a.source < b.source;
  }
  static double SecondsOf(const Event& event) { return std::bit_cast<double>(event.time); }

  const size_t leaves_;
  std::vector<Event> nodes_;    // the first of those below; the root is 1, the sources the last
  std::vector<double> places_;  // by source; empty: they do not count
};

}  // namespace crossmesh
