// What both ends of a probe know. The sender connects and says the token; sends kProbeEchoes times
// one byte, which comes back each time; then sends as fast as it can, and closes its half. The
// receiver answers with a report and closes the rest.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <absl/time/time.h>

namespace crossmesh {

// Names one probe; cannot be guessed.
using ProbeToken = std::array<char, 16>;

inline constexpr int kProbeEchoes = 16;
inline constexpr absl::Duration kProbeTimeMin = absl::Milliseconds(10);
inline constexpr absl::Duration kProbeTimeMax = absl::Seconds(10);
inline constexpr int64_t kProbeBytesMin = int64_t{1} << 16;
inline constexpr int64_t kProbeBytesMax = int64_t{1} << 36;
// For the connection and the echoes, and again for what is under way at the end.
inline constexpr absl::Duration kProbeGrace = absl::Seconds(3);

// What the receiver counted.
struct ProbeReport {
  int64_t received_bytes = 0;
  int64_t bytes_per_second = 0;

  // Both numbers, little endian.
  static constexpr size_t kBytes = 16;
  std::array<char, kBytes> Encode() const;
  static ProbeReport Decode(std::span<const char, kBytes> bytes);
  friend bool operator==(const ProbeReport&, const ProbeReport&) = default;
};

}  // namespace crossmesh
