#pragma once

#include <cstdint>

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

}  // namespace crossmesh
