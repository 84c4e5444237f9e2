#pragma once

#include <cstdint>

#include <absl/container/inlined_vector.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Payload that went to and came from other workers through one kind of link.
struct LinkBytes {
  absl::string_view link;  // as Transport::link
  int64_t sent = 0;
  int64_t received = 0;
};

// Counts since creation; monotonic. Read on the loop.
struct ExecutorCounters {
  absl::InlinedVector<LinkBytes, 4> links;  // those used so far
  int64_t copied_bytes = 0;
  int64_t relays_succeeded = 0;
  int64_t relays_failed = 0;
  int64_t checksum_failures = 0;
  int64_t stalls = 0;
  int64_t messages_dropped = 0;  // wrong token, task over, or too many pending
  int64_t staging_bytes_used = 0;
  int64_t send_staging_peak = 0;  // bytes, the most at a time
  int64_t receive_staging_peak = 0;

  LinkBytes& At(absl::string_view link) {
    for (LinkBytes& known : links) {
      if (known.link == link) return known;
    }
    return links.emplace_back(LinkBytes{.link = link});
  }
};

}  // namespace crossmesh
