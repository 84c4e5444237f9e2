#pragma once

#include "common/base/cancel_check.h"
#include "common/python/raised_status.h"

#include <chrono>
#include <utility>

#include <nanobind/nanobind.h>

namespace crossmesh {

// Lets other threads of Python run beside a long computation, and asks now and then whether a
// signal, such as that of Ctrl-C, has raised an exception. Confined to the thread that computes.
class SignalCheck {
 public:
  // True once there is an exception, which is set then.
  bool operator()() {
    const Clock::time_point now = Clock::now();
    if (raised_ || now < next_) return raised_;
    next_ = now + kInterval;
    const nanobind::gil_scoped_acquire gil;
    raised_ = PyErr_CheckSignals() != 0;
    return raised_;
  }

  bool raised() const { return raised_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kInterval = std::chrono::milliseconds(20);

  Clock::time_point next_ = Clock::now() + kInterval;
  bool raised_ = false;
};

// What `compute`, which takes a CancelCheck and returns a StatusOr, results in; raises its error,
// or what a signal has raised meanwhile. The GIL, which must be held, is released for that time.
template <typename Compute>
auto Interruptibly(const Compute& compute) {
  SignalCheck check;
  auto result = [&] {
    const nanobind::gil_scoped_release released;
    return compute([&check] { return check(); });
  }();
  if (check.raised()) throw nanobind::python_error();
  return OrRaise(std::move(result));
}

}  // namespace crossmesh
