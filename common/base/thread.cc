#include "common/base/thread.h"

#include "common/base/check.h"

#include <utility>

#include <pthread.h>

namespace crossmesh {

Thread::Thread(absl::string_view name, absl::AnyInvocable<void() &&> body)
    : thread_([short_name = std::string(name.substr(0, 15)), body = std::move(body)]() mutable {
        pthread_setname_np(pthread_self(), short_name.c_str());
        std::move(body)();
      }) {}

Thread& Thread::operator=(Thread&& other) noexcept {
  Join();
  thread_ = std::move(other.thread_);
  return *this;
}

void Thread::Join() {
  if (!thread_.joinable()) return;
  CHECK(thread_.get_id() != std::this_thread::get_id()) << "a thread cannot join itself";
  thread_.join();
}

}  // namespace crossmesh
