#include "client/drawing/plan_drawing.h"

#include "client/drawing/network_drawing.h"
#include "client/drawing/svg_writer.h"
#include "client/drawing/timeline_drawing.h"
#include "common/base/byte_count.h"
#include "common/base/format.h"

#include <cstdint>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

constexpr double kWidth = 1000;
constexpr double kMargin = 22;
constexpr double kInner = kWidth - 2 * kMargin;
constexpr double kTitle = 62;
constexpr double kLegendLine = 20;
// Routes between hosts of the last column pass to the right of it.
constexpr double kRouteRoom = 46;

constexpr absl::string_view kStyle =
    "text{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:12px;fill:#1a1a1a}"
    ".head{font-size:16px;font-weight:bold}.name{font-weight:bold}"
    ".small,.tick{font-size:10.5px;fill:#555}.label{font-size:11px}"
    ".tick{text-anchor:middle}.right{text-anchor:end}"
    ".bytes{font-size:10.5px;text-anchor:middle}"
    ".mark{font-size:11px}"
    ".box{fill:#fff;stroke:#444;stroke-width:1.2px}.rack{fill:#f6f6f6;stroke:#aaa;"
    "stroke-dasharray:4 3}"
    ".track,.row{fill:#ededed}.use{fill:#555}.route{fill:none;stroke-opacity:.85}"
    ".grid{stroke:#d8d8d8}"
    ".chain{fill:none;stroke:#000;stroke-width:1.6px}.links{stroke-width:.8px;"
    "stroke-dasharray:2 2}"
    ".bound{stroke:#c00000;stroke-width:1.4px;stroke-dasharray:5 3}"
    ".end{stroke:#1a1a1a;stroke-width:1.2px}";

std::string Bytes(int64_t bytes) { return FormatBytes(ByteCount(bytes)); }

std::string Counted(int64_t count, absl::string_view thing) {
  return absl::StrCat(count, " ", thing, count == 1 ? "" : "s");
}

std::string HeadLine(const DrawnPlan& drawn) {
  const PlanFigures& figures = drawn.simulated().plan.figures();
  return absl::StrCat(figures.strategy, ": ", Bytes(figures.network_bytes), " between ",
                      Counted(std::ssize(drawn.hosts()), "host"), " in ",
                      FormatSeconds(drawn.seconds()));
}

std::string SecondLine(const DrawnPlan& drawn) {
  const Plan& plan = drawn.simulated().plan;
  const double bound = plan.figures().bound.seconds;
  std::string text = absl::StrCat(Counted(std::ssize(plan.relays()), "relay"), ", ",
                                  Counted(plan.figures().depth, "hop"), " deep, chunks of at most ",
                                  Bytes(plan.chunk_bytes()));
  if (bound > 0) {
    absl::StrAppendFormat(&text, "; %.3f x the bound of %s", drawn.seconds() / bound,
                          FormatSeconds(bound));
  }
  if (plan.figures().assumed_rates) absl::StrAppend(&text, "; rates are assumed");
  return text;
}

// "" where all is drawn.
std::string LeftOut(const NetworkDrawing& network, const TimelineDrawing& timeline) {
  std::vector<std::string> parts;
  const auto add = [&parts](size_t count, absl::string_view thing) {
    if (count > 0) parts.push_back(Counted(static_cast<int64_t>(count), thing));
  };
  add(network.hosts_left_out(), "host");
  add(network.routes_left_out(), "route");
  add(timeline.ports_left_out(), "port");
  if (parts.empty()) return "";
  return absl::StrCat("Not drawn, since others have more to do: ", absl::StrJoin(parts, ", "), ".");
}

// Draws from left to right, on as many lines as it takes.
class Legend {
 public:
  Legend(SvgWriter* svg, double y) : svg_(svg), y_(y) {}

  // A piece of about so many pixels: where it begins.
  DrawnPoint Next(double width) {
    if (x_ > kMargin && x_ + width > kWidth - kMargin) {
      x_ = kMargin;
      y_ += kLegendLine;
    }
    const DrawnPoint at = {x_, y_};
    x_ += width;
    return at;
  }

  void AddColour(const LegendColour& colour) {
    std::string name = colour.name.substr(0, 24);
    const DrawnPoint at = Next(24 + TextWidth(name));
    if (svg_ == nullptr) return;
    svg_->Add(
        "rect",
        {{"fill", colour.colour}, {"x", at.x}, {"y", at.y - 9}, {"width", 12}, {"height", 10}});
    AddText(name, {at.x + 16, at.y});
  }

  void AddLine(absl::string_view css_class, absl::string_view meaning) {
    const DrawnPoint at = Next(42 + TextWidth(meaning));
    if (svg_ == nullptr) return;
    svg_->Add("line", {{"class", css_class},
                       {"x1", at.x},
                       {"y1", at.y - 4},
                       {"x2", at.x + 22},
                       {"y2", at.y - 4}});
    AddText(meaning, {at.x + 28, at.y});
  }

  void AddNote(absl::string_view note) {
    const DrawnPoint at = Next(14 + TextWidth(note));
    AddText(note, at);
  }

  double bottom() const { return y_ + kLegendLine - 8; }

 private:
  static double TextWidth(absl::string_view text) { return 5.5 * static_cast<double>(text.size()); }
  void AddText(absl::string_view text, DrawnPoint at) {
    if (svg_ == nullptr) return;
    svg_->AddText("text", text, {{"class", "small"}, {"x", at.x}, {"y", at.y}});
  }

  SvgWriter* const svg_;  // null: only measures
  double x_ = kMargin;
  double y_;
};

// Returns its bottom.
double DrawLegend(SvgWriter* svg, const DrawnPlan& drawn, const std::string& left_out, double y) {
  Legend legend(svg, y);
  if (drawn.routes().empty()) {
    legend.AddNote(
        "Nothing crosses the network: all bytes are where they are needed, or on their host.");
    return legend.bottom();
  }
  legend.AddNote("Bytes that were held by");
  for (const LegendColour& colour : drawn.legend()) legend.AddColour(colour);
  legend.AddLine("chain", "critical chain");
  legend.AddLine("bound", "bound: no plan is faster");
  legend.AddNote("Routes are as wide as their bytes.");
  legend.AddNote("Beside a NIC: its use, out above in.");
  legend.AddNote("Bars are as high as their part of a port's rate.");
  if (!left_out.empty()) legend.AddNote(left_out);
  return legend.bottom();
}

}  // namespace

std::string DrawPlan(const SimulatedPlan& simulated) {
  const DrawnPlan drawn(simulated);
  const NetworkDrawing network(drawn, kInner - kRouteRoom);
  const TimelineDrawing timeline(drawn, kInner);
  const std::string left_out = LeftOut(network, timeline);
  const double timeline_y = kTitle + network.height();
  const double legend_y = timeline_y + timeline.height() + 14;
  const double bottom = DrawLegend(nullptr, drawn, left_out, legend_y);

  SvgWriter svg(kWidth, bottom, kStyle);
  svg.AddText("title", HeadLine(drawn));
  svg.Add("rect", {{"width", kWidth}, {"height", bottom}, {"fill", "#fff"}});
  svg.AddText("text", HeadLine(drawn), {{"class", "head"}, {"x", kMargin}, {"y", 28}});
  svg.AddText("text", SecondLine(drawn), {{"class", "label"}, {"x", kMargin}, {"y", 47}});
  network.Draw(svg, {kMargin, kTitle});
  timeline.Draw(svg, {kMargin, timeline_y});
  DrawLegend(&svg, drawn, left_out, legend_y);
  return std::move(svg).Finish();
}

}  // namespace crossmesh
