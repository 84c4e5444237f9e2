#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <absl/functional/function_ref.h>
#include <pthread.h>

namespace crossmesh {

// What the processes of a benchmark share. What a rank says is read by the others after all have
// waited.
class RankMeeting {
 public:
  static constexpr int32_t kRanksMax = 64;

  explicit RankMeeting(int32_t ranks);

  // Until all ranks are here.
  void Wait() { pthread_barrier_wait(&barrier_); }

  void SetAddress(int32_t rank, const std::string& address);
  std::string AddressOf(int32_t rank) const;
  void SetSeconds(int32_t rank, double seconds) { said_[rank].seconds = seconds; }
  double SlowestSeconds() const;

 private:
  struct Said {
    std::array<char, 4096> address;
    size_t address_bytes = 0;
    double seconds = 0;
  };

  const int32_t ranks_;
  pthread_barrier_t barrier_;
  std::array<Said, kRanksMax> said_;
};

// Runs `body` for each rank in a process of its own. Aborts when one fails, and ends the others.
// This process must not have other threads.
void RunRankProcesses(int32_t ranks,
                      absl::FunctionRef<void(int32_t rank, RankMeeting& meeting)> body);

}  // namespace crossmesh
