#pragma once

#include "common/base/thread.h"

#include <atomic>
#include <cstdint>
#include <vector>

#include <sys/types.h>

namespace crossmesh {

// Processors that follow each other.
struct Processors {
  int first = 0;
  int count = 1;
};

// Of the machine, so that what is measured and what asks for it do not take them from each other.
// Both are all there is where there is only one.
Processors FirstHalf();
Processors SecondHalf();

// Has all threads of a process, and those that they make from now on, run on these alone.
void RunOn(Processors processors, pid_t process);

// While there is one, these are never idle: what runs when nothing else does keeps them busy. A
// virtual machine stops a processor that is idle, and whoever wakes up there waits until it runs
// again, which is not what is measured.
class BusyProcessors {
 public:
  explicit BusyProcessors(Processors processors);
  ~BusyProcessors();
  BusyProcessors(const BusyProcessors&) = delete;
  BusyProcessors& operator=(const BusyProcessors&) = delete;

 private:
  std::atomic<bool> stop_ = false;
  std::vector<Thread> threads_;
};

}  // namespace crossmesh
