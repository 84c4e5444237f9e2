#pragma once

namespace crossmesh {

// What an event loop drives: something that has work to do when a descriptor becomes readable.
// Confined to the loop's thread, apart from construction and destruction, which come before and
// after.
class EventSource {
 public:
  virtual ~EventSource() = default;

  // Advances what can be advanced. Returns the number of events handled.
  virtual int Progress() = 0;
  // Readable when Progress has something to do, once Arm returned true.
  virtual int event_fd() const = 0;
  // Call before waiting on event_fd; false means that Progress must be called again first.
  virtual bool Arm() { return true; }
};

}  // namespace crossmesh
