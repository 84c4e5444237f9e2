#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/time/time.h>
#include <nccl.h>
#include <pthread.h>
#include <sys/types.h>

namespace crossmesh {

// What the processes of RunRanks share. Thread-safe.
class Meeting {
 public:
  explicit Meeting(int ranks);

  // Waits for all ranks.
  void Wait() { pthread_barrier_wait(&barrier_); }

  // Written by one rank before all wait, read by the others after.
  ncclUniqueId id = {};
  pid_t process = 0;
  int fd = -1;

 private:
  pthread_barrier_t barrier_;
};

// Runs `body` for each rank in a process of its own, and gives what each returned: "" for OK, the
// status's text otherwise, or "killed by signal 9". This process must not have loaded the stand-ins
// or have other threads. A process that has not ended after a minute is killed.
std::vector<std::string> RunRanks(int ranks,
                                  absl::FunctionRef<absl::Status(int rank, Meeting& meeting)> body);

}  // namespace crossmesh
