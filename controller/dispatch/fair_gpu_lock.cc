#include "controller/dispatch/fair_gpu_lock.h"

#include <algorithm>
#include <utility>

namespace crossmesh {

bool FairGpuLock::Enter(const std::string& user, std::set<std::string> gpus) {
  entries_.push_back({.user = user, .gpus = std::move(gpus)});
  return !GiveTurns().empty();
}

std::vector<std::string> FairGpuLock::Leave(const std::string& user) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.user == user; });
  return GiveTurns();
}

std::vector<std::string> FairGpuLock::GiveTurns() {
  std::vector<std::string> given;
  std::set<std::string> taken;
  for (Entry& entry : entries_) {
    const bool is_free = std::ranges::none_of(
        entry.gpus, [&](const std::string& gpu) { return taken.contains(gpu); });
    if (is_free && !std::exchange(entry.has_turn, true)) given.push_back(entry.user);
    // Also of those that wait: no later user may overtake them.
    taken.insert(entry.gpus.begin(), entry.gpus.end());
  }
  return given;
}

}  // namespace crossmesh
