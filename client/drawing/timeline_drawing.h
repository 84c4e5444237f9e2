#pragma once

#include "client/drawing/drawn_plan.h"
#include "client/drawing/host_places.h"
#include "client/drawing/svg_writer.h"
#include "client/drawing/timeline.h"

#include <string>
#include <vector>

namespace crossmesh {

// Draws a run over time: a row for each port with its rate and its use, a bar for each chunk or run
// of chunks, the critical chain, the bound and the end. Immutable.
class TimelineDrawing {
 public:
  TimelineDrawing(const DrawnPlan& drawn, double width);

  double height() const;
  size_t ports_left_out() const { return timeline_.ports_left_out; }
  // `at`: where its upper left corner goes.
  void Draw(SvgWriter& svg, DrawnPoint at) const;

 private:
  // A line through all rows, and what it says at its upper end.
  struct Mark {
    double seconds = 0;
    absl::string_view css_class;
    std::string text;
    double text_y = 0;
  };

  double XOf(double seconds) const { return left_ + seconds / pixel_seconds_; }
  double RowHeight(const TimelineRow& row) const;
  // Where a lane of a row is; its x and width mean nothing.
  DrawnBox LaneBox(int32_t row, int32_t lane) const;
  void DrawAxis(SvgWriter& svg) const;
  void DrawRow(SvgWriter& svg, size_t row) const;
  void DrawChain(SvgWriter& svg) const;
  void DrawMark(SvgWriter& svg, const Mark& mark) const;

  const DrawnPlan& drawn_;
  double left_ = 0;  // of the plot
  double right_ = 0;
  double pixel_seconds_ = 0;
  Timeline timeline_;
  std::vector<double> tops_;  // of rows; the last is the bottom of all
};

}  // namespace crossmesh
