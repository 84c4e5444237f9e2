#include "client/python/extension/python_values.h"

#include "common/python/raised_status.h"

#include <string>
#include <utility>

#include <absl/container/inlined_vector.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

namespace crossmesh {
namespace nb = nanobind;

nb::tuple ToPython(const Box& box) {
  nb::list slices;
  for (const Interval& interval : box.intervals()) {
    slices.append(nb::slice(nb::int_(interval.begin), nb::int_(interval.end), nb::none()));
  }
  return nb::tuple(slices);
}

nb::list ToPython(const Tile& tile) {
  nb::list boxes;
  for (const Box& box : tile) boxes.append(ToPython(box));
  return boxes;
}

nb::dict ToPython(const Coordinates& coordinates) {
  nb::dict dictionary;
  for (const auto& [axis, value] : coordinates) dictionary[axis.c_str()] = value;
  return dictionary;
}

namespace {

Interval IntervalOf(nb::handle interval) {
  if (!PySlice_Check(interval.ptr())) {
    const auto [begin, end] = nb::cast<std::pair<int64_t, int64_t>>(interval);
    return {begin, end};
  }
  const nb::object begin = interval.attr("start"), end = interval.attr("stop");
  const nb::object step = interval.attr("step");
  if (begin.is_none() || end.is_none() || !(step.is_none() || step.equal(nb::int_(1)))) {
    RaiseStatus(absl::InvalidArgumentError(
        absl::StrCat("box: expected slices with a begin, an end and no step, found ",
                     nb::repr(interval).c_str())));
  }
  return {nb::cast<int64_t>(begin), nb::cast<int64_t>(end)};
}

}  // namespace

Box BoxOf(nb::handle box) {
  absl::InlinedVector<Interval, 4> intervals;
  for (const nb::handle interval : box) intervals.push_back(IntervalOf(interval));
  // What no shape has is refused as in text.
  return OrRaise(ParseBox(ToString(Box(std::move(intervals)))));
}

Shape ShapeOf(const std::vector<int64_t>& lengths) { return OrRaise(Shape::Create(lengths)); }

}  // namespace crossmesh
