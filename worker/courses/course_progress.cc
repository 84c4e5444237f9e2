#include "worker/courses/course_progress.h"

#include "common/base/check.h"

#include <iterator>
#include <utility>

namespace crossmesh {

CourseProgress::CourseProgress(Settings settings)
    : settings_(std::move(settings)),
      has_source_(!settings_.awaits_source),
      states_(settings_.reduces.size() * settings_.instances, State::kWaiting),
      begun_(settings_.reduces.size()),
      fed_(settings_.reduces.size()),
      reduced_(settings_.reduces.size()),
      open_(std::ssize(states_)) {}

bool CourseProgress::HasRoom(At at) const {
  const At before{.step = at.step, .instance = at.instance - settings_.buffers};
  if (before.instance < 0) return true;
  if (settings_.reduces[at.step]) return IsDone(before);
  // Who has no part in the next step may be through with that one first.
  return IsMoved(before) && (is_last(at) || IsMoved({at.step + 1, before.instance}));
}

bool CourseProgress::CanBegin(At at) const {
  if (!HasRoom(at)) return false;
  if (at.step == 0) return true;
  if (is_last(at) && !IsMoved({0, at.instance})) return false;
  // Arrays of a single instance take turns: this one's may be that of the step before the last.
  if (settings_.instances == 1) return IsDone({at.step - 1, at.instance});
  return StateOf({at.step - 1, at.instance}) >= State::kBegun;
}

std::optional<CourseProgress::At> CourseProgress::Begin() {
  // Later steps first, since they free what earlier ones wait for.
  for (int32_t step = steps() - 1; step >= 0; --step) {
    const At at{.step = step, .instance = begun_[step]};
    if (at.instance == settings_.instances || !CanBegin(at)) continue;
    ++begun_[step];
    StateOf(at) = State::kBegun;
    return at;
  }
  return std::nullopt;
}

std::optional<CourseProgress::At> CourseProgress::Feed() {
  for (int32_t step = steps() - 1; step >= 0; --step) {
    // Who has nothing to send may have moved before it was fed.
    while (fed_[step] < begun_[step] && IsMoved({step, fed_[step]})) ++fed_[step];
    const At at{.step = step, .instance = fed_[step]};
    if (at.instance == begun_[step]) continue;
    if (step > 0 ? !IsDone({step - 1, at.instance}) : !has_source_) continue;
    ++fed_[step];
    StateOf(at) = State::kFed;
    return at;
  }
  return std::nullopt;
}

std::optional<CourseProgress::At> CourseProgress::Reduce() {
  for (int32_t step = steps() - 1; step >= 0; --step) {
    const At at{.step = step, .instance = reduced_[step]};
    if (!settings_.reduces[step] || at.instance == settings_.instances ||
        StateOf(at) != State::kMoved) {
      continue;
    }
    const At reader{.step = step + 1, .instance = at.instance - settings_.buffers};
    if (reader.step < steps() && reader.instance >= 0 && !IsMoved(reader)) continue;
    ++reduced_[step];
    StateOf(at) = State::kReducing;
    return at;
  }
  return std::nullopt;
}

void CourseProgress::OnMoved(At at) {
  CHECK(StateOf(at) == State::kBegun || StateOf(at) == State::kFed);
  StateOf(at) = settings_.reduces[at.step] ? State::kMoved : State::kDone;
  if (IsDone(at)) --open_;
}

void CourseProgress::OnReduced(At at) {
  CHECK(StateOf(at) == State::kReducing);
  StateOf(at) = State::kDone;
  --open_;
}

}  // namespace crossmesh
