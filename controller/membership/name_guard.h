#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// Which process may have the name of a worker, as far as its past decides. A process that was
// evicted may not; neither may any once two have taken turns: the name is in quarantine then, since
// each turn loses what the other one has begun. Times are of one clock that never goes back.
// Thread-compatible.
class NameGuard {
 public:
  // A process that comes back within this time after another one had its name takes turns with it.
  static constexpr absl::Duration kTurn = absl::Seconds(10);
  static constexpr absl::Duration kQuarantine = absl::Minutes(1);

  // From its start to its end.
  struct Process {
    uint64_t incarnation = 0;
    std::string address;

    friend bool operator==(const Process&, const Process&) = default;
  };

  // May `process` have the name, which `former` has, or had last? PermissionDenied: it was evicted;
  // AlreadyExists: the name is in quarantine, perhaps from now on. Both say what to do.
  absl::Status Admit(const std::string& name, const Process& process,
                     const std::optional<Process>& former, absl::Duration now);
  void Evicted(const std::string& name, const Process& process);
  // Nothing of it is remembered any more.
  void Forget(const std::string& name) { names_.erase(name); }

  // Why nobody gets the name now; nothing when it is not in quarantine.
  std::optional<std::string> WhyQuarantined(const std::string& name, absl::Duration now) const;

 private:
  struct Past {
    std::optional<Process> replaced;  // the last process of which another one has the name
    absl::Duration replaced_at;
    std::optional<Process> evicted;
    absl::Duration quarantined_until;
    std::string why;  // of the quarantine
  };

  absl::flat_hash_map<std::string, Past> names_;
};

}  // namespace crossmesh
