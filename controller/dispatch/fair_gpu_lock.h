#pragma once

#include <set>
#include <string>
#include <vector>

namespace crossmesh {

// Whose turn it is on which GPUs. All that exchange bytes must run tasks in an order on which they
// agree: let one begin with x and the other with y, and both wait for ever. So a user has all of
// its GPUs at a time, and no other user has any of them. First come, first served: it is a user's
// turn when no user before it wants one of the same GPUs. No user waits while it keeps others
// waiting, so all get their turn.
//
// Thread-compatible. Cost: linear in the GPUs of all users.
class FairGpuLock {
 public:
  // Whether it is the user's turn at once; else some Leave tells. The user is not here.
  bool Enter(const std::string& user, std::set<std::string> gpus);
  // The user needs its GPUs, or its turn, no longer: those whose turn it is now. Repeatable.
  std::vector<std::string> Leave(const std::string& user);

 private:
  struct Entry {
    std::string user;
    std::set<std::string> gpus;
    bool has_turn = false;
  };

  // Users whose turn it has become.
  std::vector<std::string> GiveTurns();

  std::vector<Entry> entries_;  // in the order in which they came
};

}  // namespace crossmesh
