#include "tests/standin/driver/stream.h"

#include <utility>

namespace crossmesh {

Stream::Stream(int device, int priority)
    : device_(device), priority_(priority), thread_("standin-stream", [this] { Run(); }) {}

void Stream::Enqueue(Task task) {
  MutexLock lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.SignalAll();
}

bool Stream::idle() {
  MutexLock lock(mutex_);
  return tasks_.empty() && !running_;
}

void Stream::WaitUntilIdle() {
  MutexLock lock(mutex_);
  while (!tasks_.empty() || running_) changed_.Wait(mutex_);
}

void Stream::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.Join();
}

bool Stream::Hold(std::string reason) {
  MutexLock lock(mutex_);
  if (!held_for_.empty()) return false;
  held_for_ = std::move(reason);
  return true;
}

void Stream::Release() {
  MutexLock lock(mutex_);
  held_for_.clear();
}

std::string Stream::held_for() {
  MutexLock lock(mutex_);
  return held_for_;
}

void Stream::Run() {
  while (true) {
    Task task;
    {
      MutexLock lock(mutex_);
      running_ = false;
      changed_.SignalAll();
      while (tasks_.empty() && !stopping_) changed_.Wait(mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      running_ = true;
    }
    task();
  }
}

}  // namespace crossmesh
