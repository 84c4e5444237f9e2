#include "planner/reshard/whole_degrees.h"

#include <algorithm>
#include <iterator>

namespace crossmesh {
namespace {

// The bytes at which a host sends one copy more than its whole degree: [begin, end), or, when the
// range wraps around, all but [end, begin).
struct Degree {
  int64_t whole = 0;
  int64_t begin = 0;
  int64_t end = 0;
  bool wraps = false;

  int64_t At(int64_t byte) const {
    const bool more = wraps ? byte >= begin || byte < end : byte >= begin && byte < end;
    return whole + (more ? 1 : 0);
  }
};

// By wrap-around over `bytes`.
std::vector<Degree> Degrees(std::span<const absl::int128> amounts, int64_t bytes,
                            absl::int128 unit) {
  const absl::int128 size = unit * bytes;
  absl::int128 at = 0;
  std::vector<Degree> degrees;
  for (const absl::int128 amount : amounts) {
    Degree degree{.whole = static_cast<int64_t>(amount / size)};
    const absl::int128 end = at + amount % size;
    // Both ends are rounded down, the end of one host being the begin of the next: no byte is sent
    // too often or too seldom.
    degree.begin = static_cast<int64_t>(at / unit);
    degree.wraps = end > size;
    at = degree.wraps ? end - size : end;
    degree.end = static_cast<int64_t>(at / unit);
    if (at == size) at = 0;
    degrees.push_back(degree);
  }
  return degrees;
}

// Ends of the ranges in which no degree changes, ascending; the last is `bytes`.
std::vector<int64_t> SectionEnds(std::span<const Degree> degrees, int64_t bytes) {
  std::vector<int64_t> ends = {bytes};
  for (const Degree& degree : degrees) {
    if (degree.begin > 0) ends.push_back(degree.begin);
    if (degree.end > 0) ends.push_back(degree.end);
  }
  std::ranges::sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

}  // namespace

std::vector<DegreeSection> WholeDegrees(std::span<const absl::int128> amounts, int64_t bytes,
                                        absl::int128 unit) {
  const std::vector<Degree> degrees = Degrees(amounts, bytes, unit);
  std::vector<DegreeSection> sections;
  int64_t begin = 0;
  for (const int64_t end : SectionEnds(degrees, bytes)) {
    DegreeSection& section = sections.emplace_back(DegreeSection{.end = end});
    section.degrees.reserve(degrees.size());
    for (const Degree& degree : degrees) section.degrees.push_back(degree.At(begin));
    begin = end;
  }
  return sections;
}

int64_t CountSections(std::span<const absl::int128> amounts, int64_t bytes, absl::int128 unit) {
  return std::ssize(SectionEnds(Degrees(amounts, bytes, unit), bytes));
}

std::vector<DegreeSection> FanOut(const DegreeSection& section, int64_t begin, int64_t holders,
                                  int64_t fan_out) {
  std::vector<size_t> single;  // receivers that pass each byte on once
  for (size_t i = holders; i < section.degrees.size(); ++i) {
    if (section.degrees[i] == 1) single.push_back(i);
  }
  // A tree needs as many receivers that pass bytes on as it has branches.
  fan_out = std::min(fan_out, std::ssize(single));
  if (fan_out <= 1) return {section};
  const int64_t bytes = section.end - begin;
  const int64_t parts = std::clamp<int64_t>(bytes / kFanOutBytesMin, 1, fan_out);
  const int64_t per_part = std::ssize(single) / fan_out;
  std::vector<DegreeSection> result;
  for (int64_t part = 0; part < parts; ++part) {
    DegreeSection& made = result.emplace_back(section);
    // Multiplied apart, since bytes times parts may not fit.
    made.end = begin + bytes / parts * (part + 1) + bytes % parts * (part + 1) / parts;
    for (int64_t i = 0; i < per_part * fan_out; ++i) {
      made.degrees[single[i]] = i / per_part == part ? fan_out : 0;
    }
  }
  return result;
}

}  // namespace crossmesh
