#include "worker/courses/message_steps.h"

#include "common/base/check.h"

#include <algorithm>
#include <utility>

namespace crossmesh {

MessageSteps::MessageSteps(std::vector<bool> reduces, int32_t buffers)
    : reduces_(std::move(reduces)), buffers_(buffers) {
  for (Buffer& buffer : buffers_) buffer.states.resize(reduces_.size());
  open_.reserve(buffers);
}

void MessageSteps::Open(int32_t buffer) {
  CHECK(std::ranges::find(open_, buffer) == open_.end()) << "buffer " << buffer << " is in use";
  std::ranges::fill(buffers_[buffer].states, State::kWaiting);
  buffers_[buffer].has_source = false;
  buffers_[buffer].moving = buffers_[buffer].done = 0;
  open_.push_back(buffer);
}

void MessageSteps::OnSource(int32_t buffer) { buffers_[buffer].has_source = true; }

bool MessageSteps::CanBegin(size_t place, int32_t step) const {
  const Buffer& buffer = buffers_[open_[place]];
  if (buffer.states[step] != State::kWaiting) return false;
  if (place > 0 && buffers_[open_[place - 1]].states[step] == State::kWaiting) return false;
  if (step == 0 || buffer.states[step - 1] == State::kDone) return true;
  return step + 1 == steps() && !reduces_[step];
}

bool MessageSteps::CanFeed(const Buffer& buffer, int32_t step) const {
  return buffer.states[step] == State::kBegun &&
         (step == 0 ? buffer.has_source : buffer.states[step - 1] == State::kDone);
}

std::optional<MessageSteps::At> MessageSteps::Begin() {
  for (size_t place = 0; place < open_.size(); ++place) {
    for (int32_t step = 0; step < steps(); ++step) {
      if (!CanBegin(place, step)) continue;
      const At at{.step = step, .buffer = open_[place]};
      StateOf(at) = State::kBegun;
      ++buffers_[at.buffer].moving;
      return at;
    }
  }
  return std::nullopt;
}

std::optional<MessageSteps::At> MessageSteps::Feed() {
  for (const int32_t buffer : open_) {
    for (int32_t step = 0; step < steps(); ++step) {
      if (!CanFeed(buffers_[buffer], step)) continue;
      const At at{.step = step, .buffer = buffer};
      StateOf(at) = State::kFed;
      return at;
    }
  }
  return std::nullopt;
}

std::optional<MessageSteps::At> MessageSteps::Reduce() {
  for (const int32_t buffer : open_) {
    for (int32_t step = 0; step < steps(); ++step) {
      const At at{.step = step, .buffer = buffer};
      if (StateOf(at) != State::kMoved) continue;
      StateOf(at) = State::kReducing;
      return at;
    }
  }
  return std::nullopt;
}

void MessageSteps::OnMoved(At at) {
  CHECK(StateOf(at) == State::kBegun || StateOf(at) == State::kFed);
  StateOf(at) = reduces_[at.step] ? State::kMoved : State::kDone;
  --buffers_[at.buffer].moving;
  if (!reduces_[at.step]) ++buffers_[at.buffer].done;
}

void MessageSteps::OnReduced(At at) {
  CHECK(StateOf(at) == State::kReducing);
  StateOf(at) = State::kDone;
  ++buffers_[at.buffer].done;
}

void MessageSteps::Close(int32_t buffer) { std::erase(open_, buffer); }

}  // namespace crossmesh
