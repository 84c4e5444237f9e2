#pragma once

#include <string>
#include <thread>

#include <absl/functional/any_invocable.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Who goes first where threads want a processor at the same time. One in the background has a tenth
// of what a usual one has, and lets it go ahead as soon as that has something to do (nice 10).
enum class ThreadPriority { kUsual, kBackground };

// A thread with a name, joined by its destructor at the latest. Thread-compatible.
class Thread {
 public:
  Thread() = default;

  // Runs `body`. The name shows in debuggers and `top`; the system keeps its first 15 bytes.
  Thread(absl::string_view name, absl::AnyInvocable<void() &&> body,
         ThreadPriority priority = ThreadPriority::kUsual);

  Thread(Thread&&) = default;
  // Joins the thread that is replaced.
  Thread& operator=(Thread&& other) noexcept;
  ~Thread() { Join(); }

  // Waits until the body has returned; repeatable. Must not be called by the thread itself.
  void Join();

  // Is there a thread that has not been joined?
  bool joinable() const { return thread_.joinable(); }

 private:
  std::thread thread_;
};

}  // namespace crossmesh
