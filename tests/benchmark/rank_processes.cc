#include "tests/benchmark/rank_processes.h"

#include "common/base/check.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <new>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

namespace crossmesh {

RankMeeting::RankMeeting(int32_t ranks) : ranks_(ranks) {
  CHECK(ranks <= kRanksMax) << "at most " << kRanksMax << " ranks";
  pthread_barrierattr_t attributes;
  CHECK_EQ(pthread_barrierattr_init(&attributes), 0);
  CHECK_EQ(pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED), 0);
  CHECK_EQ(pthread_barrier_init(&barrier_, &attributes, ranks), 0);
}

void RankMeeting::SetAddress(int32_t rank, const std::string& address) {
  Said& said = said_[rank];
  CHECK(address.size() <= said.address.size());
  std::ranges::copy(address, said.address.begin());
  said.address_bytes = address.size();
}

std::string RankMeeting::AddressOf(int32_t rank) const {
  return {said_[rank].address.data(), said_[rank].address_bytes};
}

double RankMeeting::SlowestSeconds() const {
  double slowest = 0;
  for (int32_t rank = 0; rank < ranks_; ++rank) slowest = std::max(slowest, said_[rank].seconds);
  return slowest;
}

void RunRankProcesses(int32_t ranks,
                      absl::FunctionRef<void(int32_t rank, RankMeeting& meeting)> body) {
  void* const memory =
      mmap(nullptr, sizeof(RankMeeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  auto* const meeting = new (memory) RankMeeting(ranks);
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    CHECK(child >= 0) << "fork";
    if (child > 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    body(rank, *meeting);
    std::fflush(stdout);
    _exit(0);
  }
  for (int32_t rank = 0; rank < ranks; ++rank) {
    int status = 0;
    CHECK(wait(&status) > 0);
    CHECK(status == 0) << "a process ended with " << status;  // and this one's end is the others'
  }
  munmap(memory, sizeof(RankMeeting));
}

}  // namespace crossmesh
