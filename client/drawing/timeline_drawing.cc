#include "client/drawing/timeline_drawing.h"

#include "client/drawing/time_axis.h"
#include "common/base/format.h"

#include <algorithm>
#include <map>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

constexpr double kLabels = 250;  // to the left of the plot
constexpr double kUses = 52;     // and to the right of it
constexpr double kHead = 34;     // above the rows: names of the bound and of the end
constexpr double kAxis = 40;     // below them
constexpr double kRowGap = 4;
constexpr double kFullRate = 16;  // height of a bar at the full rate of its port
constexpr double kRowMax = 36;
// Beyond so many runs of the critical chain, the lines from one to the next would hide the bars.
constexpr size_t kConnectedMax = 80;

double LaneHeight(double part_of_rate) { return std::max(2.0, part_of_rate * kFullRate); }

absl::string_view Direction(PortPrice::Port kind) {
  switch (kind) {
    case PortPrice::Port::kHostOut:
      return "out";
    case PortPrice::Port::kHostIn:
      return "in";
    case PortPrice::Port::kRackUp:
      return "up";
    case PortPrice::Port::kRackDown:
      return "down";
  }
  return "";
}

std::string PercentText(double part) {
  if (0 < part && part < 0.0005) return "<0.1 %";
  return absl::StrFormat("%.*f %%", part < 0.0095 ? 1 : 0, 100 * part);
}

std::string PortLabel(const NetworkPort& port) {
  return absl::StrCat(SvgLabel(port.name, 24), " ", Direction(port.kind));
}

}  // namespace

TimelineDrawing::TimelineDrawing(const DrawnPlan& drawn, double width)
    : drawn_(drawn), left_(kLabels), right_(width - kUses) {
  const double seconds = std::max(drawn.seconds(), drawn.simulated().plan.figures().bound.seconds);
  pixel_seconds_ = seconds > 0 ? seconds / (right_ - left_) : 1;
  timeline_ = MakeTimeline(drawn, pixel_seconds_);
  double top = kHead;
  for (const TimelineRow& row : timeline_.rows) {
    tops_.push_back(top);
    top += RowHeight(row) + kRowGap;
  }
  tops_.push_back(top);
}

double TimelineDrawing::height() const { return timeline_.rows.empty() ? 0 : tops_.back() + kAxis; }

double TimelineDrawing::RowHeight(const TimelineRow& row) const {
  double height = 0;
  for (const double part : row.lanes) height += LaneHeight(part);
  return std::clamp(height, kFullRate, kRowMax);
}

// From the top of the row if the lanes fill it, else in its middle.
DrawnBox TimelineDrawing::LaneBox(int32_t row, int32_t lane) const {
  const std::vector<double>& lanes = timeline_.rows[row].lanes;
  double all = 0, before = 0;
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (static_cast<int32_t>(i) == lane) before = all;
    all += LaneHeight(lanes[i]);
  }
  const double height = RowHeight(timeline_.rows[row]);
  const double scale = std::min(1.0, height / all);
  return {.y = tops_[row] + (height - all * scale) / 2 + before * scale,
          .height = LaneHeight(lanes[lane]) * scale};
}

void TimelineDrawing::Draw(SvgWriter& svg, DrawnPoint at) const {
  if (timeline_.rows.empty()) return;
  svg.Open("g",
           {{"class", "timeline"},
            {"transform", absl::StrCat("translate(", SvgNumber(at.x), " ", SvgNumber(at.y), ")")}});
  DrawAxis(svg);
  for (size_t row = 0; row < timeline_.rows.size(); ++row) DrawRow(svg, row);
  DrawChain(svg);
  const double bound = drawn_.simulated().plan.figures().bound.seconds;
  DrawMark(svg, {.seconds = bound,
                 .css_class = "bound",
                 .text = absl::StrCat("bound ", FormatSeconds(bound)),
                 .text_y = kHead - 7});
  DrawMark(svg, {.seconds = drawn_.seconds(),
                 .css_class = "end",
                 .text = absl::StrCat("simulated ", FormatSeconds(drawn_.seconds())),
                 .text_y = kHead - 20});
  svg.Close();
}

void TimelineDrawing::DrawAxis(SvgWriter& svg) const {
  const double bottom = tops_.back();
  const double whole = (right_ - left_) * pixel_seconds_;
  const TimeUnit unit = UnitFor(whole);
  const double step = StepFor(whole / unit.seconds);
  for (int i = 0; i * step * unit.seconds <= whole * (1 + 1e-9); ++i) {
    const double x = XOf(i * step * unit.seconds);
    svg.Add("line", {{"class", "grid"}, {"x1", x}, {"y1", kHead - 2}, {"x2", x}, {"y2", bottom}});
    svg.AddText("text", absl::StrFormat("%g", i * step),
                {{"class", "tick"}, {"x", x}, {"y", bottom + 14}});
  }
  svg.AddText("text", absl::StrCat("time (", unit.name, ")"),
              {{"class", "tick"}, {"x", (left_ + right_) / 2}, {"y", bottom + 30}});
  svg.AddText("text", "port", {{"class", "small"}, {"x", 0}, {"y", kHead - 7}});
  svg.AddText("text", "rate", {{"class", "small right"}, {"x", left_ - 10}, {"y", kHead - 7}});
  svg.AddText("text", "busy", {{"class", "small right"}, {"x", right_ + kUses}, {"y", kHead - 7}});
}

void TimelineDrawing::DrawRow(SvgWriter& svg, size_t number) const {
  const TimelineRow& row = timeline_.rows[number];
  const NetworkPort& port = drawn_.simulated().run.ports[row.port];
  const double top = tops_[number], height = RowHeight(row);
  const double text_y = top + height / 2 + 4;
  svg.Open("g", {{"class", "port"}});
  svg.AddText("title", absl::StrCat(port.name, " ", Direction(port.kind)));
  svg.AddText("text", PortLabel(port), {{"class", "label"}, {"x", 0}, {"y", text_y}});
  svg.AddText("text", FormatRate(port.bytes_per_second),
              {{"class", "small right"}, {"x", left_ - 10}, {"y", text_y}});
  svg.AddText("text", PercentText(drawn_.UseOf(row.port)),
              {{"class", "small right"}, {"x", right_ + kUses}, {"y", text_y}});
  svg.Add(
      "rect",
      {{"class", "row"}, {"x", left_}, {"y", top}, {"width", right_ - left_}, {"height", height}});
  std::map<int32_t, std::string> data;  // by colour
  for (const TimelineBar& bar : row.bars) {
    // A hair of white between chunks, where there is room for it.
    const double x = XOf(bar.begin);
    double width = XOf(bar.end) - x;
    width = width > 3 ? width - 0.6 : std::max(width, 0.3);
    const DrawnBox lane = LaneBox(static_cast<int32_t>(number), bar.lane);
    const double gap = lane.height > 5 ? 0.3 : 0;
    absl::StrAppend(&data[bar.colour], "M", SvgNumber(x), " ", SvgNumber(lane.y + gap), "h",
                    SvgNumber(width), "v", SvgNumber(lane.height - 2 * gap), "h", SvgNumber(-width),
                    "z");
  }
  for (const auto& [colour, path] : data) {
    svg.Add("path", {{"class", "bars"}, {"fill", drawn_.legend()[colour].colour}, {"d", path}});
  }
  svg.Close();
}

void TimelineDrawing::DrawChain(SvgWriter& svg) const {
  std::string spans, links;
  const auto middle_of = [this](int32_t row, int32_t lane) {
    const DrawnBox box = LaneBox(row, lane);
    return box.y + box.height / 2;
  };
  const auto line = [](std::string& data, DrawnPoint from, DrawnPoint to) {
    absl::StrAppend(&data, "M", SvgNumber(from.x), " ", SvgNumber(from.y), "L", SvgNumber(to.x),
                    " ", SvgNumber(to.y));
  };
  const CriticalSpan* last = nullptr;
  for (const CriticalSpan& span : timeline_.critical) {
    const double begin = XOf(span.begin), end = XOf(span.end);
    if (span.out_row >= 0) {
      const double y = middle_of(span.out_row, span.out_lane);
      line(spans, {begin, y}, {end, y});
      if (last != nullptr && last->in_row >= 0) {
        line(links, {begin, middle_of(last->in_row, last->in_lane)}, {begin, y});
      }
    }
    if (span.in_row >= 0) {
      const double y = middle_of(span.in_row, span.in_lane);
      line(spans, {XOf(span.begin + span.latency), y}, {XOf(span.end + span.latency), y});
    }
    last = &span;
  }
  if (timeline_.critical.size() <= kConnectedMax && !links.empty()) {
    svg.Add("path", {{"class", "chain links"}, {"d", links}});
  }
  if (!spans.empty()) svg.Add("path", {{"class", "chain"}, {"d", spans}});
}

void TimelineDrawing::DrawMark(SvgWriter& svg, const Mark& mark) const {
  const double x = XOf(mark.seconds);
  svg.Add("line", {{"class", mark.css_class},
                   {"x1", x},
                   {"y1", mark.text_y - 8},
                   {"x2", x},
                   {"y2", tops_.back() + 3}});
  // To the left of its line, unless there is no room.
  const bool left = x - left_ > 150;
  svg.AddText(
      "text", mark.text,
      {{"class", left ? "mark right" : "mark"}, {"x", left ? x - 4 : x + 4}, {"y", mark.text_y}});
}

}  // namespace crossmesh
