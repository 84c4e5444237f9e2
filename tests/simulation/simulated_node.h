#pragma once

#include "common/base/clock.h"
#include "tests/simulation/simulated_world.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <absl/time/time.h>

namespace crossmesh {

// A host with one process, whose clocks run at a speed of their own. The process is killed and
// started again, each time with another life; while it is paused nothing of it happens, and comes
// all at once when it goes on. Thread-compatible.
//
// Of a process others see nothing but its effects: messages, and what it writes and syncs. They are
// counted over all lives, and a process may be told to end just before one of them: the rest of the
// step in which that is has no effects any more, and is followed by no other step.
class SimulatedNode : private Clock {
 public:
  SimulatedNode(SimulatedWorld& world, int index, std::string name)
      : world_(world), index_(index), name_(std::move(name)) {}
  SimulatedNode(const SimulatedNode&) = delete;
  SimulatedNode& operator=(const SimulatedNode&) = delete;

  SimulatedWorld& world() const { return world_; }
  int index() const { return index_; }
  const std::string& name() const { return name_; }
  const Clock& clock() const { return *this; }
  bool is_up() const { return is_up_; }
  bool is_paused() const { return is_paused_; }
  absl::Duration paused_since() const { return paused_since_; }  // in the time of the world
  int64_t life() const { return life_; }

  // Called after each step of the process.
  void OnStepped(std::function<void()> on_stepped) { on_stepped_ = std::move(on_stepped); }

  void Start();
  void Kill();
  // Has an effect; false: the process has ended just before it. What others do in the name of a
  // host whose process is not up is none.
  bool HaveEffect();
  int64_t effects() const { return effects_; }
  // Just before effect number `effect`, from zero, `on_end` is called, by which the process is to
  // be killed after the present step.
  void EndBefore(int64_t effect, std::function<void()> on_end) {
    end_before_ = effect;
    on_end_ = std::move(on_end);
  }
  void Pause();
  void Resume();
  // Of both clocks: 1 is as fast as the world's time.
  void SetSpeed(double speed);
  // From what it would be without any jump.
  void JumpWallClock(absl::Duration offset) { wall_offset_ = offset; }

  // A step of the process as it is now, when `delay` has passed by its clock.
  void After(absl::Duration delay, SimulatedWorld::Step step);
  // Now, or when it goes on; not at all when `life` is over.
  template <typename Step>
  void Run(int64_t life, Step step) {
    if (life != life_ || is_ending_) return;
    if (is_paused_) {
      paused_steps_.push_back(std::move(step));
      return;
    }
    step();
    if (life == life_ && on_stepped_ != nullptr) on_stepped_();
  }

 private:
  absl::Time Now() const override;
  absl::Duration Monotonic() const override;
  void Wait(int64_t life, absl::Duration due, SimulatedWorld::Step step);

  SimulatedWorld& world_;
  const int index_;
  const std::string name_;
  std::function<void()> on_stepped_;
  int64_t life_ = 0;
  int64_t effects_ = 0;
  std::optional<int64_t> end_before_;  // that effect
  std::function<void()> on_end_;
  bool is_ending_ = false;  // and is up until the step is done
  bool is_up_ = false;
  bool is_paused_ = false;
  absl::Duration paused_since_;
  std::deque<SimulatedWorld::Step> paused_steps_;
  double speed_ = 1;
  absl::Duration speed_since_;                   // in the world's time
  absl::Duration elapsed_ = absl::Seconds(100);  // by the node's clock, until then
  absl::Duration ahead_ = elapsed_;              // by which it was then before the world's
  absl::Duration wall_offset_;
};

}  // namespace crossmesh
