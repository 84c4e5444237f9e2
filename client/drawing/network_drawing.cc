#include "client/drawing/network_drawing.h"

#include "common/base/byte_count.h"
#include "common/base/format.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr double kArrow = 9;
constexpr double kCharacter = 6.1;  // pixels; of a label, about

std::string PointText(char command, const DrawnPoint& point) {
  return absl::StrCat(std::string(1, command), SvgNumber(point.x), " ", SvgNumber(point.y));
}

// Small boxes along a route.
void AddPen(const RouteCurve& curve, std::vector<DrawnBox>& boxes) {
  constexpr int kSteps = 60;
  for (int i = 0; i <= kSteps; ++i) {
    const DrawnPoint p = curve.At(static_cast<double>(i) / kSteps);
    boxes.push_back({p.x - 1, p.y - curve.width / 2, 2, curve.width});
  }
}

}  // namespace

NetworkDrawing::NetworkDrawing(const DrawnPlan& drawn, double width)
    : drawn_(drawn), places_(PlaceHosts(drawn, width)), routes_(PlaceRoutes(drawn, places_)) {}

void NetworkDrawing::Draw(SvgWriter& svg, DrawnPoint at) const {
  svg.Open("g",
           {{"class", "network"},
            {"transform", absl::StrCat("translate(", SvgNumber(at.x), " ", SvgNumber(at.y), ")")}});
  for (const RackPlace& rack : places_.racks) DrawRack(svg, rack);
  // The routes with most bytes come first, and are drawn last: on top of the others.
  for (auto curve = routes_.curves.rbegin(); curve != routes_.curves.rend(); ++curve) {
    DrawRoute(svg, *curve);
  }
  for (const HostPlace& place : places_.hosts) DrawHost(svg, place);
  if (routes_.curves.size() <= kLabelledMax) DrawBytes(svg);
  svg.Close();
}

void NetworkDrawing::DrawRack(SvgWriter& svg, const RackPlace& rack) const {
  svg.Add("rect", {{"class", "rack"},
                   {"x", rack.box.x},
                   {"y", rack.box.y},
                   {"width", rack.box.width},
                   {"height", rack.box.height},
                   {"rx", 6}});
  svg.AddText("text", absl::StrCat("rack ", SvgLabel(rack.name, 18)),
              {{"class", "small"}, {"x", rack.box.x + 4}, {"y", rack.box.y - 4}});
}

void NetworkDrawing::DrawRoute(SvgWriter& svg, const RouteCurve& curve) const {
  const absl::string_view colour = drawn_.legend()[curve.route->colour].colour;
  // The head of the arrow takes the end of the line.
  const DrawnPoint& tip = curve.end();
  const DrawnPoint neck = {tip.x + (curve.ends_rightwards() ? -kArrow : kArrow), tip.y};
  std::string data = PointText('M', curve.pieces.front().from);
  for (const RouteCurve::Piece& piece : curve.pieces) {
    const bool last = &piece == &curve.pieces.back();
    absl::StrAppend(&data, PointText('C', piece.from_control), PointText(' ', piece.to_control),
                    PointText(' ', last ? neck : piece.to));
  }
  svg.Add("path",
          {{"class", "route"}, {"stroke", colour}, {"stroke-width", curve.width}, {"d", data}});
  const double half = curve.width / 2 + 2.5;
  svg.Add("path", {{"fill", colour},
                   {"d", absl::StrCat(PointText('M', {neck.x, neck.y - half}), PointText('L', tip),
                                      PointText('L', {neck.x, neck.y + half}), "z")}});
}

void NetworkDrawing::DrawHost(SvgWriter& svg, const HostPlace& place) const {
  const std::string& name = drawn_.network().hosts[place.host];
  const DrawnBox& box = place.box;
  svg.Open("g", {{"class", "host"}});
  svg.AddText("title", name);
  svg.Add("rect", {{"class", "box"},
                   {"x", box.x},
                   {"y", box.y},
                   {"width", box.width},
                   {"height", box.height},
                   {"rx", 4}});
  svg.AddText("text", SvgLabel(name, 14), {{"class", "name"}, {"x", box.x + 8}, {"y", box.y + 14}});
  for (size_t line = 0; line < place.out.size(); ++line) DrawNic(svg, place, line);
  svg.Close();
}

void NetworkDrawing::DrawNic(SvgWriter& svg, const HostPlace& place, size_t line) const {
  const std::string& host = drawn_.network().hosts[place.host];
  const std::string& port = drawn_.simulated().run.ports[place.out[line]].name;
  std::string nic = port.substr(std::min(port.size(), host.size() + 1));
  const int64_t hidden = place.nics - std::ssize(place.out);
  if (line + 1 == place.out.size() && hidden > 0) nic = absl::StrCat("+ ", hidden, " more");
  const double y = place.NicY(line);
  svg.AddText("text", SvgLabel(nic, 9),
              {{"class", "small"}, {"x", place.box.x + 8}, {"y", y + 3.5}});
  constexpr double kBar = 46;
  const double x = place.box.right() - kBar - 8;
  for (const auto& [number, top] :
       {std::pair(place.out[line], y - 5), std::pair(place.in[line], y + 1)}) {
    svg.Add("rect", {{"class", "track"}, {"x", x}, {"y", top}, {"width", kBar}, {"height", 4}});
    const double use = std::min(1.0, drawn_.UseOf(number));
    svg.Add("rect", {{"class", "use"}, {"x", x}, {"y", top}, {"width", use * kBar}, {"height", 4}});
  }
}

// Each above its route, where neither a host nor a route nor another label is; not at all where
// there is no such place.
void NetworkDrawing::DrawBytes(SvgWriter& svg) const {
  std::vector<DrawnBox> taken;
  for (const HostPlace& host : places_.hosts) taken.push_back(host.box);
  for (const RouteCurve& curve : routes_.curves) AddPen(curve, taken);
  for (const RouteCurve& curve : routes_.curves) {
    const auto bytes = std::llround(curve.route->bytes);
    const std::string text = FormatBytes(ByteCount(bytes));
    const double width = kCharacter * static_cast<double>(text.size()) + 2;
    for (const double part : {0.5, 0.4, 0.6, 0.3, 0.7, 0.22, 0.78, 0.15, 0.85}) {
      const DrawnPoint p = curve.At(part);
      const DrawnBox box = {p.x - width / 2, p.y - curve.width / 2 - 15, width, 12};
      const auto overlaps = [&box](const DrawnBox& other) { return box.Overlaps(other); };
      if (std::ranges::any_of(taken, overlaps)) continue;
      taken.push_back(box);
      svg.AddText("text", text, {{"class", "bytes"}, {"x", p.x}, {"y", box.bottom() - 1.5}});
      break;
    }
  }
}

}  // namespace crossmesh
