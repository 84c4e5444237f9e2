#pragma once

#include "client/drawing/drawn_plan.h"
#include "client/drawing/host_places.h"
#include "client/drawing/route_curves.h"
#include "client/drawing/svg_writer.h"

#include <cstddef>

namespace crossmesh {

// Draws hosts with their NICs, and routes as wide as their bytes. Beside each NIC two bars say how
// much of the run it works: out, and in below. Immutable.
class NetworkDrawing {
 public:
  // Up to so many routes have their bytes above them, those where there is room.
  static constexpr size_t kLabelledMax = 14;

  NetworkDrawing(const DrawnPlan& drawn, double width);
  NetworkDrawing(const NetworkDrawing&) = delete;  // curves refer to places

  double height() const { return places_.height; }
  size_t hosts_left_out() const { return places_.hosts_left_out; }
  size_t routes_left_out() const { return routes_.left_out; }
  // `at`: where its upper left corner goes.
  void Draw(SvgWriter& svg, DrawnPoint at) const;

 private:
  void DrawRack(SvgWriter& svg, const RackPlace& rack) const;
  void DrawHost(SvgWriter& svg, const HostPlace& place) const;
  void DrawNic(SvgWriter& svg, const HostPlace& place, size_t line) const;
  void DrawRoute(SvgWriter& svg, const RouteCurve& curve) const;
  void DrawBytes(SvgWriter& svg) const;

  const DrawnPlan& drawn_;
  const NetworkPlaces places_;
  const RouteCurves routes_;
};

}  // namespace crossmesh
