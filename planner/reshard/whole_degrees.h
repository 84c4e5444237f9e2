#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <absl/numeric/int128.h>

namespace crossmesh {

// A byte range of a group, from the end of the one before to `end`, of which every host sends a
// whole number of copies: its out-degree. Holders come first, then receivers.
struct DegreeSection {
  int64_t end = 0;
  std::vector<int64_t> degrees;
};

// A host that sends a of a group's `bytes` has the out-degree a / bytes, whole for some bytes and
// one more for the others: the fractional parts are laid one after the other around [0, bytes)
// (McNaughton's wrap-around rule, 1959), so that at every byte the degrees add up to the same sum.
// This cuts the group into sections, one for each host with a fractional degree and one more at
// most. Amounts are bytes times `unit`.
std::vector<DegreeSection> WholeDegrees(std::span<const absl::int128> amounts, int64_t bytes,
                                        absl::int128 unit);
// How many sections that makes, in the memory of one.
int64_t CountSections(std::span<const absl::int128> amounts, int64_t bytes, absl::int128 unit);

// The same sums at every byte, and the same bytes sent by every host, by fewer hosts at a time:
// receivers with the degree 1 are dealt out to `fan_out` parts of the section's bytes, which begin
// at `begin`, and have the degree `fan_out` there and 0 elsewhere. Those that are left over keep
// theirs. A route of n such receivers is n hops deep with the degree 1, with k about log(n) to the
// base k. Where the parts would be less than kFanOutBytesMin there are fewer of them, and some
// hosts send more than before.
//
// Example: degrees 1 (holder), 1, 1, 1, 1, 0 with a fan-out of 2 become 1, 2, 2, 0, 0, 0 for the
// first half of the bytes, 1, 0, 0, 2, 2, 0 for the second.
constexpr int64_t kFanOutBytesMin = 4096;
std::vector<DegreeSection> FanOut(const DegreeSection& section, int64_t begin, int64_t holders,
                                  int64_t fan_out);

}  // namespace crossmesh
