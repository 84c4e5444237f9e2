#include "client/drawing/route_curves.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

namespace crossmesh {
namespace {

constexpr double kWidest = 8;
constexpr double kNarrowest = 1.2;
constexpr double kBend = 45;  // to the side, of a route between hosts of one column
// How far up or down a route that would cross a host goes around it.
constexpr std::array<double, 8> kDetours = {-34, 34, -50, 50, -80, 80, -120, 120};

// The place of the NIC with this port; of one without a line of its own, that of the last line.
double NicY(const HostPlace& host, const std::vector<int32_t>& ports, int32_t port) {
  const auto found = std::ranges::find(ports, port);
  return host.NicY(static_cast<size_t>(std::min(found - ports.begin(), std::ssize(ports) - 1)));
}

// Where a route leaves a host and where it enters one; directions are -1 and 1, of the way it goes.
struct Ends {
  const HostPlace* from_host = nullptr;
  const HostPlace* to_host = nullptr;
  DrawnPoint from;
  DrawnPoint to;
  double from_direction = 1;
  double to_direction = 1;
};

Ends EndsOf(const DrawnRoute& route, const HostPlace& from, const HostPlace& to) {
  const bool leftwards = to.box.x < from.box.x;
  const bool same_column = to.box.x == from.box.x;
  return {
      .from_host = &from,
      .to_host = &to,
      .from = {leftwards ? from.box.x : from.box.right(), NicY(from, from.out, route.out_port)},
      .to = {leftwards || same_column ? to.box.right() : to.box.x, NicY(to, to.in, route.in_port)},
      .from_direction = leftwards ? -1.0 : 1.0,
      .to_direction = leftwards || same_column ? -1.0 : 1.0};
}

std::vector<RouteCurve::Piece> Straight(const Ends& e) {
  const double bend =
      e.from.x == e.to.x ? kBend : std::max(kBend / 2, std::abs(e.to.x - e.from.x) / 2);
  return {{.from = e.from,
           .from_control = {e.from.x + e.from_direction * bend, e.from.y},
           .to_control = {e.to.x - e.to_direction * bend, e.to.y},
           .to = e.to}};
}

// By way of a point halfway, `detour` below the lower end (above the higher one, if negative).
std::vector<RouteCurve::Piece> Around(const Ends& e, double detour) {
  constexpr double kEarly = 26, kLate = 8;  // steep beside the hosts, level on the way
  const double edge = detour < 0 ? std::min(e.from.y, e.to.y) : std::max(e.from.y, e.to.y);
  const DrawnPoint middle = {(e.from.x + e.to.x) / 2, edge + detour};
  return {{.from = e.from,
           .from_control = {e.from.x + e.from_direction * kEarly, e.from.y},
           .to_control = {e.from.x + e.from_direction * kLate, middle.y},
           .to = middle},
          {.from = middle,
           .from_control = {e.to.x - e.to_direction * kLate, middle.y},
           .to_control = {e.to.x - e.to_direction * kEarly, e.to.y},
           .to = e.to}};
}

class RoutePlacement {
 public:
  RoutePlacement(const DrawnPlan& drawn, const NetworkPlaces& places)
      : drawn_(drawn), places_(places) {}

  RouteCurves Run() && {
    for (const DrawnRoute& route : drawn_.routes()) {
      const HostPlace* const from = Find(route.from);
      const HostPlace* const to = Find(route.to);
      if (from == nullptr || to == nullptr || ends_.size() == RouteCurves::kRoutesMax) {
        ++result_.left_out;
        continue;
      }
      result_.curves.push_back({.route = &route});
      ends_.push_back(EndsOf(route, *from, *to));
    }
    const double widest = Spread();
    for (size_t i = 0; i < ends_.size(); ++i) {
      RouteCurve& curve = result_.curves[i];
      const double part = curve.route->bytes / result_.curves.front().route->bytes;
      curve.width = kNarrowest + (widest - kNarrowest) * part;
      curve.pieces = Straight(ends_[i]);
      if (HitsAHost(curve, ends_[i])) GoAround(curve, ends_[i]);
    }
    return std::move(result_);
  }

 private:
  const HostPlace* Find(HostRank host) const {
    const auto found = std::ranges::find(places_.hosts, host, &HostPlace::host);
    return found == places_.hosts.end() ? nullptr : &*found;
  }

  // Ends that would lie on one another get a place each beside their NIC, sorted by where the
  // routes come from and go to. Returns the width that the widest may have.
  double Spread() {
    struct End {
      DrawnPoint* at;
      double other_y;
      double room;
    };
    std::map<std::pair<double, double>, std::vector<End>> by_place;
    for (Ends& e : ends_) {
      const DrawnPoint from = e.from, to = e.to;
      by_place[{from.x, from.y}].push_back({&e.from, to.y, e.from_host->NicRoom()});
      by_place[{to.x, to.y}].push_back({&e.to, from.y, e.to_host->NicRoom()});
    }
    double widest = kWidest;
    for (auto& [place, here] : by_place) {
      std::ranges::stable_sort(here, {}, &End::other_y);
      const auto count = static_cast<double>(here.size());
      for (size_t i = 0; i < here.size(); ++i) {
        here[i].at->y += ((static_cast<double>(i) + 0.5) / count - 0.5) * here[i].room;
      }
      widest = std::min(widest, 1.6 * here.front().room / count);
    }
    return std::max(widest, kNarrowest);
  }

  void GoAround(RouteCurve& curve, const Ends& ends) const {
    const std::vector<RouteCurve::Piece> straight = curve.pieces;
    for (const double detour : kDetours) {
      curve.pieces = Around(ends, detour);
      if (!HitsAHost(curve, ends)) return;
    }
    curve.pieces = straight;  // behind the hosts
  }

  bool HitsAHost(const RouteCurve& curve, const Ends& ends) const {
    constexpr int kSamples = 40;
    for (int i = 1; i < kSamples; ++i) {
      const DrawnPoint p = curve.At(static_cast<double>(i) / kSamples);
      if (p.y < 2 || p.y > places_.height - 2) return true;
      const double half = curve.width / 2 + 1;
      const DrawnBox pen = {p.x - half, p.y - half, 2 * half, 2 * half};
      for (const HostPlace& host : places_.hosts) {
        if (&host != ends.from_host && &host != ends.to_host && pen.Overlaps(host.box)) return true;
      }
    }
    return false;
  }

  const DrawnPlan& drawn_;
  const NetworkPlaces& places_;
  std::vector<Ends> ends_;  // by curve
  RouteCurves result_;
};

}  // namespace

DrawnPoint RouteCurve::At(double part) const {
  const double at = part * static_cast<double>(pieces.size());
  const auto number = std::min(static_cast<size_t>(at), pieces.size() - 1);
  const double t = at - static_cast<double>(number), s = 1 - t;
  const Piece& p = pieces[number];
  const auto along = [t, s](double a, double b, double c, double d) {
    return s * s * s * a + 3 * s * s * t * b + 3 * s * t * t * c + t * t * t * d;
  };
  return {along(p.from.x, p.from_control.x, p.to_control.x, p.to.x),
          along(p.from.y, p.from_control.y, p.to_control.y, p.to.y)};
}

RouteCurves PlaceRoutes(const DrawnPlan& drawn, const NetworkPlaces& places) {
  return RoutePlacement(drawn, places).Run();
}

}  // namespace crossmesh
