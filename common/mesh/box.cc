#include "common/mesh/box.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/mesh/box_text.h"
#include "common/mesh/shape.h"
#include "common/mesh/text_scanner.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {

Interval Intersect(Interval a, Interval b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

bool Box::empty() const {
  return std::any_of(intervals_.begin(), intervals_.end(),
                     [](const Interval& interval) { return interval.empty(); });
}

int64_t Box::volume() const {
  if (empty()) return 0;
  int64_t volume = 1;
  for (const Interval& interval : intervals_) volume *= interval.length();
  return volume;
}

bool Box::Contains(const Box& other) const {
  CHECK_EQ(rank(), other.rank());
  if (other.empty()) return true;
  for (int d = 0; d < rank(); ++d) {
    if (other[d].begin < (*this)[d].begin || other[d].end > (*this)[d].end) return false;
  }
  return true;
}

std::optional<Box> Intersect(const Box& a, const Box& b) {
  CHECK_EQ(a.rank(), b.rank());
  absl::InlinedVector<Interval, 4> common;
  for (int d = 0; d < a.rank(); ++d) {
    common.push_back(Intersect(a[d], b[d]));
    if (common.back().empty()) return std::nullopt;
  }
  return Box(std::move(common));
}

std::string ToString(const Box& box) {
  return absl::StrCat("[",
                      absl::StrJoin(box.intervals(), ", ",
                                    [](std::string* out, const Interval& interval) {
                                      absl::StrAppend(out, interval.begin, ":", interval.end);
                                    }),
                      "]");
}

absl::StatusOr<Box> ScanBox(TextScanner& scanner) {
  RETURN_IF_ERROR(scanner.Expect("["));
  absl::InlinedVector<Interval, 4> intervals;
  absl::InlinedVector<int64_t, 4> ends;
  if (!scanner.Take("]")) {
    do {
      ASSIGN_OR_RETURN(const int64_t begin, scanner.Integer());
      RETURN_IF_ERROR(scanner.Expect(":"));
      ASSIGN_OR_RETURN(const int64_t end, scanner.Integer());
      if (end < begin) {
        return scanner.ErrorAtLast(absl::StrCat("an end of at least ", begin));
      }
      intervals.push_back({begin, end});
      ends.push_back(end);
    } while (scanner.Take(","));
    RETURN_IF_ERROR(scanner.Expect("]"));
  }
  RETURN_IF_ERROR(Shape::Create(ends).status());
  return Box(std::move(intervals));
}

absl::StatusOr<Box> ParseBox(absl::string_view text) {
  TextScanner scanner("box", text);
  ASSIGN_OR_RETURN(Box box, ScanBox(scanner));
  RETURN_IF_ERROR(scanner.ExpectEnd());
  return box;
}

}  // namespace crossmesh
