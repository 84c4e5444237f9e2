#include "common/base/thread.h"

#include "common/base/check.h"

#include <utility>

#include <pthread.h>
#include <sys/resource.h>

namespace crossmesh {
namespace {

constexpr int kBackgroundNice = 10;

// On Linux of this thread alone, and of those that it makes. What is more than the system has is
// taken for the most.
void YieldToOthers() {
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kBackgroundNice);
}

}  // namespace

Thread::Thread(absl::string_view name, absl::AnyInvocable<void() &&> body, ThreadPriority priority)
    : thread_([short_name = std::string(name.substr(0, 15)), body = std::move(body),
               priority]() mutable {
        pthread_setname_np(pthread_self(), short_name.c_str());
        if (priority == ThreadPriority::kBackground) YieldToOthers();
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
