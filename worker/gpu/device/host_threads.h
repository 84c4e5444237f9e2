#pragma once

#include "common/base/clock.h"
#include "common/event_loop/event_loop.h"
#include "worker/gpu/device/gpu.h"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Threads beside that of a Gpu, for what keeps the host busy while the GPU needs none of it:
// hashing, registering memory of the host and giving it back. Its context is current on them.
// Confined to the loop of the Gpu.
class HostThreads {
 public:
  // `count` threads, at least one. All references must outlive them. Errors of the driver;
  // ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<HostThreads>> Create(Gpu& gpu, EventLoop& loop, int count);
  // What was begun must have ended.
  ~HostThreads() = default;
  HostThreads(const HostThreads&) = delete;
  HostThreads& operator=(const HostThreads&) = delete;

  // Runs `work` on one of the threads, and then on the loop `done` with what that gave.
  template <class Work, class Done>
  void Run(Work work, Done done) {
    next_ = (next_ + 1) % threads_.size();
    threads_[next_]->Post([&loop = loop_, work = std::move(work),
                           done = std::move(done)]() mutable {
      loop.Post([result = work(), done = std::move(done)]() mutable { done(std::move(result)); });
    });
  }

 private:
  explicit HostThreads(EventLoop& loop) : loop_(loop) {}

  EventLoop& loop_;
  const RealClock clock_;  // of their timers, of which there are none
  std::vector<std::unique_ptr<EventLoop>> threads_;
  size_t next_ = 0;
};

}  // namespace crossmesh
