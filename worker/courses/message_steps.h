#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace crossmesh {

// What the messages of a course that is replayed do next at one worker, each in a buffer with
// arrays of its own. Knows neither bytes nor time; allocates nothing once it is made.
//
//   waiting --Begin--> begun --Feed--> fed --OnMoved--> moved --Reduce, OnReduced--> done
//
// A step of a message is begun when the step before it is done, since arrays between steps take
// turns; the last one fills destination tiles, if it does not reduce, and begins with the first.
// It is fed, that is, its own bytes may be sent, when the step before it is done; the first one,
// when its source is here. At every worker each step takes the messages in the order in which they
// were opened, which is one order for all.
class MessageSteps {
 public:
  struct At {
    int32_t step = 0;
    int32_t buffer = 0;
    friend bool operator==(const At&, const At&) = default;
  };

  // `reduces`: by step.
  MessageSteps(std::vector<bool> reduces, int32_t buffers);

  // The next message, in a buffer that has none.
  void Open(int32_t buffer);
  // Of the message that is there.
  void OnSource(int32_t buffer);
  // The next step to begin, to feed or to reduce, which counts as begun, fed, or taken to be
  // reduced from now on. Nothing: it has to wait.
  std::optional<At> Begin();
  std::optional<At> Feed();
  std::optional<At> Reduce();
  void OnMoved(At at);
  void OnReduced(At at);

  // Are all steps done of the message there?
  bool IsDone(int32_t buffer) const { return buffers_[buffer].done == steps(); }
  // Steps of the message there that have begun, and not moved.
  int32_t moving(int32_t buffer) const { return buffers_[buffer].moving; }
  void Close(int32_t buffer);
  // Buffers with messages, in the order of these.
  const std::vector<int32_t>& open() const { return open_; }

 private:
  enum class State : uint8_t { kWaiting, kBegun, kFed, kMoved, kReducing, kDone };
  struct Buffer {
    std::vector<State> states;  // [step]
    bool has_source = false;
    int32_t moving = 0;
    int32_t done = 0;
  };

  int32_t steps() const { return static_cast<int32_t>(reduces_.size()); }
  bool CanBegin(size_t place, int32_t step) const;
  bool CanFeed(const Buffer& buffer, int32_t step) const;
  State& StateOf(At at) { return buffers_[at.buffer].states[at.step]; }

  const std::vector<bool> reduces_;
  std::vector<Buffer> buffers_;
  std::vector<int32_t> open_;
};

}  // namespace crossmesh
