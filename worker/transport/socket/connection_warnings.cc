#include "worker/transport/socket/connection_warnings.h"

#include "common/base/log.h"

#include <utility>

namespace crossmesh {

void ConnectionWarnings::TooMany(int64_t without_handshake_max) {
  const std::optional<int64_t> left_out = Pass(too_many_);
  if (!left_out.has_value()) return;
  LogWarning("socket_connection_refused",
             {{"without_handshake_max", without_handshake_max}, {"left_out", *left_out}});
}

void ConnectionWarnings::Malformed(absl::string_view other_side, absl::string_view problem) {
  const std::optional<int64_t> left_out = Pass(malformed_);
  if (!left_out.has_value()) return;
  LogWarning("socket_connection_malformed",
             {{"other_side", other_side}, {"problem", problem}, {"left_out", *left_out}});
}

std::optional<int64_t> ConnectionWarnings::Pass(Limit& limit) const {
  const absl::Duration now = clock_.Monotonic();
  if (now - limit.begin >= absl::Seconds(1)) {
    limit.begin = now;
    limit.lines = 0;
  }
  if (limit.lines == kLinesPerSecond) {
    ++limit.left_out;
    return std::nullopt;
  }
  ++limit.lines;
  return std::exchange(limit.left_out, 0);
}

}  // namespace crossmesh
