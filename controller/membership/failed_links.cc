#include "controller/membership/failed_links.h"

#include <algorithm>

namespace crossmesh {

FailedLinks::Link FailedLinks::LinkOf(absl::string_view worker, absl::string_view peer) {
  return worker < peer ? Link(worker, peer) : Link(peer, worker);
}

void FailedLinks::Fail(absl::string_view worker, absl::string_view peer, absl::string_view reason,
                       absl::Duration now) {
  const Link link = LinkOf(worker, peer);
  const auto found = links_.find(link);
  if (found == links_.end()) {
    if (links_.size() == kLinksMax) return;
    links_[link] = {.reason = std::string(reason), .since = now, .kept = kKeptFirst};
    return;
  }
  // Both ends tell of one failure.
  State& state = found->second;
  if (now < state.since + state.kept) return;
  state = {.reason = std::string(reason), .since = now, .kept = std::min(2 * state.kept, kKeptMax)};
}

void FailedLinks::Work(absl::string_view worker, absl::string_view peer) {
  if (!links_.empty()) links_.erase(LinkOf(worker, peer));
}

void FailedLinks::Forget(absl::string_view worker) {
  std::erase_if(links_, [worker](const auto& entry) {
    return entry.first.first == worker || entry.first.second == worker;
  });
}

std::vector<FailedLinks::Failure> FailedLinks::Now(absl::Duration now) const {
  std::vector<Failure> failures;
  for (const auto& [link, state] : links_) {
    if (now >= state.since + state.kept) continue;
    failures.push_back(
        {.worker = link.first, .peer = link.second, .reason = state.reason, .since = state.since});
  }
  return failures;
}

}  // namespace crossmesh
