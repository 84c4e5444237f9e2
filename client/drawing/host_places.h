#pragma once

#include "client/drawing/drawn_plan.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace crossmesh {

// Pixels from the left and the top.
struct DrawnPoint {
  double x = 0;
  double y = 0;
};

struct DrawnBox {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;

  double right() const { return x + width; }
  double bottom() const { return y + height; }
  bool Overlaps(const DrawnBox& b) const {
    return x < b.right() && b.x < right() && y < b.bottom() && b.y < bottom();
  }
};

// Where a host is drawn, and a line of it for each NIC.
struct HostPlace {
  static constexpr double kWidth = 124;
  static constexpr double kNameHeight = 20;
  static constexpr double kNicHeight = 16;
  static constexpr int64_t kNicsMax = 6;

  HostRank host = 0;
  DrawnBox box;
  std::vector<int32_t>
      out;  // ports, by NIC; at most kNicsMax, those of the others in the last line
  std::vector<int32_t> in;
  int64_t nics = 0;

  // Of one NIC, for the ends of routes.
  double NicRoom() const { return nics == 1 ? 22 : kNicHeight - 4; }
  double NicY(size_t line) const {
    return box.y + kNameHeight + (static_cast<double>(line) + 0.5) * kNicHeight;
  }
};

// A frame around hosts of one rack that stand together.
struct RackPlace {
  std::string name;
  DrawnBox box;
};

struct NetworkPlaces {
  static constexpr size_t kHostsMax = 24;

  std::vector<HostPlace> hosts;
  std::vector<RackPlace> racks;
  size_t hosts_left_out = 0;  // those with fewest bytes
  double height = 0;
};

// Places hosts on a field `width` pixels wide: layers from left to right, in columns of at most
// eight hosts; where that makes too many columns, in lines that turn at their ends.
NetworkPlaces PlaceHosts(const DrawnPlan& drawn, double width);

}  // namespace crossmesh
