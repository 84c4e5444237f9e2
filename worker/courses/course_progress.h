#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace crossmesh {

// What the instances of a course do next at one worker. Knows neither bytes nor time.
//
//   waiting --Begin--> begun --OnFed--> fed --OnMoved--> moved --OnReduced--> done
//
// A step of an instance is begun when the array that it fills is free: whoever sends to it may do
// so from then on. It is fed, that is, its own bytes may be sent, when the step before it is done.
// Without a reduction it is done when its bytes have moved. An array is free when the step that
// fills it and the one that reads it have moved for the instance that used the same buffer before.
// The last step of an instance begins when its first one has moved, since it may fill the memory
// that the first reads.
class CourseProgress {
 public:
  // What the course has: steps, of which some reduce; instances; buffers.
  struct Settings {
    std::vector<bool> reduces;  // [step]
    int32_t instances = 1;
    int32_t buffers = 1;
    bool awaits_source = false;  // no first step is fed before OnSource
  };
  struct At {
    int32_t step = 0;
    int32_t instance = 0;
    friend bool operator==(const At&, const At&) = default;
  };

  explicit CourseProgress(Settings settings);

  // The next step of an instance to begin, to feed or to reduce, which counts as begun, fed, or
  // taken to be reduced from now on. Nothing: it has to wait.
  std::optional<At> Begin();
  std::optional<At> Feed();
  std::optional<At> Reduce();
  // The source tiles are filled, of all instances.
  void OnSource() { has_source_ = true; }
  void OnMoved(At at);
  void OnReduced(At at);

  // Every step of every instance: where there is nothing to send or to get, the last one may have
  // moved before others.
  bool done() const { return open_ == 0; }

 private:
  enum class State : uint8_t { kWaiting, kBegun, kFed, kMoved, kReducing, kDone };

  int32_t steps() const { return static_cast<int32_t>(settings_.reduces.size()); }
  State& StateOf(At at) { return states_[at.step * settings_.instances + at.instance]; }
  State StateOf(At at) const { return states_[at.step * settings_.instances + at.instance]; }
  bool is_last(At at) const { return at.step + 1 == steps(); }
  // Whether what the step fills is free: an array for summands, one for the next step, or
  // destination tiles.
  bool HasRoom(At at) const;
  bool CanBegin(At at) const;
  bool IsMoved(At at) const { return StateOf(at) >= State::kMoved; }
  bool IsDone(At at) const { return StateOf(at) == State::kDone; }

  const Settings settings_;
  bool has_source_;
  std::vector<State> states_;   // [step][instance]
  std::vector<int32_t> begun_;  // [step]: so many instances, in order
  std::vector<int32_t> fed_;
  std::vector<int32_t> reduced_;  // likewise
  int64_t open_;                  // steps of instances that are not done
};

}  // namespace crossmesh
