#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// Links between workers over which bytes did not get through, as one of their ends says. A link has
// no direction: what cuts a connection cuts it both ways. Each is kept for a time, after which it
// is tried again: a minute, twice as long each time that it fails again, up to a quarter of an
// hour. Times are of one clock that never goes back. Thread-compatible.
class FailedLinks {
 public:
  static constexpr absl::Duration kKeptFirst = absl::Minutes(1);
  static constexpr absl::Duration kKeptMax = absl::Minutes(16);
  static constexpr size_t kLinksMax = 10'000;

  struct Failure {
    std::string worker;
    std::string peer;
    std::string reason;
    absl::Duration since;
  };

  // Nothing happens when so many are kept that there is no room for another.
  void Fail(absl::string_view worker, absl::string_view peer, absl::string_view reason,
            absl::Duration now);
  // Bytes got through.
  void Work(absl::string_view worker, absl::string_view peer);
  // The worker is gone: its next process may have another link.
  void Forget(absl::string_view worker);

  // Those that are not to be used now, by worker and peer, the lesser name first.
  std::vector<Failure> Now(absl::Duration now) const;

 private:
  using Link = std::pair<std::string, std::string>;  // the lesser name first
  struct State {
    std::string reason;
    absl::Duration since;
    absl::Duration kept;
  };
  static Link LinkOf(absl::string_view worker, absl::string_view peer);

  std::map<Link, State> links_;
};

}  // namespace crossmesh
