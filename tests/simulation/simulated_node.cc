#include "tests/simulation/simulated_node.h"

#include <utility>

namespace crossmesh {

absl::Duration SimulatedNode::Monotonic() const {
  if (speed_ == 1) return world_.now() + ahead_;
  return elapsed_ + absl::Trunc((world_.now() - speed_since_) * speed_, absl::Nanoseconds(1));
}

absl::Time SimulatedNode::Now() const {
  return absl::FromUnixSeconds(1'790'000'000) + Monotonic() + wall_offset_;
}

void SimulatedNode::Start() {
  ++life_;
  is_up_ = true;
  world_.Log(name_, "starts");
}

void SimulatedNode::Kill() {
  ++life_;
  is_up_ = false;
  is_ending_ = false;
  is_paused_ = false;
  paused_steps_.clear();
  world_.Log(name_, "is killed");
}

bool SimulatedNode::HaveEffect() {
  if (!is_up_) return true;
  if (is_ending_) return false;
  if (effects_ != end_before_) {
    ++effects_;
    return true;
  }
  end_before_.reset();
  is_ending_ = true;
  world_.Log(name_, "ends before an effect");
  on_end_();
  return false;
}

void SimulatedNode::Pause() {
  if (!is_up_) return;
  is_paused_ = true;
  paused_since_ = world_.now();
  world_.Log(name_, "is paused");
}

void SimulatedNode::Resume() {
  if (!std::exchange(is_paused_, false)) return;
  world_.Log(name_, "goes on");
  std::deque<SimulatedWorld::Step> steps;
  steps.swap(paused_steps_);
  const int64_t life = life_;
  for (SimulatedWorld::Step& step : steps) {
    // One of them may end the process.
    if (life_ == life) Run(life, std::move(step));
  }
}

void SimulatedNode::SetSpeed(double speed) {
  elapsed_ = Monotonic();
  speed_since_ = world_.now();
  ahead_ = elapsed_ - speed_since_;
  speed_ = speed;
}

void SimulatedNode::After(absl::Duration delay, SimulatedWorld::Step step) {
  Wait(life_, Monotonic() + delay, std::move(step));
}

// Looks again when the time has come by the world's clock: the node's own may run slower by then.
void SimulatedNode::Wait(int64_t life, absl::Duration due, SimulatedWorld::Step step) {
  const absl::Duration delay = absl::Ceil((due - Monotonic()) / speed_, absl::Nanoseconds(1));
  world_.After(delay, [this, life, due, step = std::move(step)]() mutable {
    if (life != life_) return;
    if (Monotonic() < due) return Wait(life, due, std::move(step));
    Run(life, std::move(step));
  });
}

}  // namespace crossmesh
