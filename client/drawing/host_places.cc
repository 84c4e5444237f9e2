#include "client/drawing/host_places.h"

#include <algorithm>
#include <utility>

namespace crossmesh {
namespace {

constexpr size_t kColumnsMax = 6;
constexpr size_t kColumnHosts = 8;
constexpr double kGap = 16;      // between hosts of a column
constexpr double kRackGap = 20;  // for the name of a rack above its first host
constexpr double kRackPad = 7;
constexpr double kEdge = 30;  // above and below, for routes that go around hosts

using Column = std::vector<HostPlace>;

// The hosts with most bytes, in the order of DrawnPlan.
std::vector<DrawnHost> ChooseHosts(const DrawnPlan& drawn) {
  std::vector<DrawnHost> hosts = drawn.hosts();
  if (hosts.size() <= NetworkPlaces::kHostsMax) return hosts;
  std::vector<double> bytes;
  for (const DrawnHost& host : hosts) bytes.push_back(host.bytes);
  std::ranges::sort(bytes, std::ranges::greater());
  const double least = bytes[NetworkPlaces::kHostsMax - 1];
  // Of hosts with equally few bytes as many stay as there is room for.
  auto ties = std::ranges::count(bytes.begin(), bytes.begin() + NetworkPlaces::kHostsMax, least);
  std::erase_if(hosts, [&](const DrawnHost& host) {
    return host.bytes < least || (host.bytes == least && ties-- <= 0);
  });
  return hosts;
}

HostPlace NewPlace(const DrawnPlan& drawn, HostRank host) {
  HostPlace place{.host = host};
  const auto out = drawn.ports().out(host), in = drawn.ports().in(host);
  place.nics = std::ssize(out);
  const int64_t lines = std::min(place.nics, HostPlace::kNicsMax);
  place.out.assign(out.begin(), out.begin() + lines);
  place.in.assign(in.begin(), in.begin() + lines);
  place.box.width = HostPlace::kWidth;
  place.box.height =
      HostPlace::kNameHeight + static_cast<double>(lines) * HostPlace::kNicHeight + 4;
  return place;
}

std::vector<Column> ColumnsOf(const DrawnPlan& drawn, const std::vector<DrawnHost>& hosts) {
  std::vector<Column> columns;
  int32_t layer = -1;
  for (const DrawnHost& host : hosts) {
    if (host.layer != layer || columns.back().size() == kColumnHosts) columns.emplace_back();
    layer = host.layer;
    columns.back().push_back(NewPlace(drawn, host.host));
  }
  // Hosts that only exchange among each other are all roots: one column would leave no room for
  // routes.
  if (columns.size() == 1 && columns[0].size() > 1) {
    const auto middle = columns[0].begin() + std::ssize(columns[0]) / 2;
    Column right(std::make_move_iterator(middle), std::make_move_iterator(columns[0].end()));
    columns[0].erase(middle, columns[0].end());
    columns.push_back(std::move(right));
  }
  return columns;
}

// Lines of hosts instead of columns, every second one from right to left, as columns.
std::vector<Column> InTurningLines(std::vector<Column> columns) {
  std::vector<Column> result(kColumnsMax);
  size_t i = 0;
  for (Column& column : columns) {
    for (HostPlace& host : column) {
      const size_t at = i % kColumnsMax;
      result[i / kColumnsMax % 2 == 0 ? at : kColumnsMax - 1 - at].push_back(std::move(host));
      ++i;
    }
  }
  return result;
}

class HostPlacement {
 public:
  HostPlacement(const DrawnPlan& drawn, double width) : drawn_(drawn), width_(width) {}

  NetworkPlaces Run() && {
    const std::vector<DrawnHost> hosts = ChooseHosts(drawn_);
    places_.hosts_left_out = drawn_.hosts().size() - hosts.size();
    std::vector<Column> columns = ColumnsOf(drawn_, hosts);
    const bool lines = columns.size() > kColumnsMax;
    if (lines) columns = InTurningLines(std::move(columns));
    for (size_t c = 0; c < columns.size(); ++c) {
      PlaceColumn(columns[c], lines, XOf(c, columns.size()));
      tallest_ = std::max(tallest_, columns[c].empty() ? 0 : columns[c].back().box.bottom());
    }
    for (Column& column : columns) {
      if (column.empty()) continue;
      // Lines begin at the top; columns stand around the middle.
      const double down = kEdge + (lines ? 0 : (tallest_ - column.back().box.bottom()) / 2);
      for (HostPlace& host : column) host.box.y += down;
      std::ranges::move(column, std::back_inserter(places_.hosts));
    }
    if (lines) {
      std::ranges::stable_sort(places_.hosts, {}, [](const HostPlace& host) { return host.box.y; });
    }
    FrameRacks(lines);
    places_.height = places_.hosts.empty() ? 0 : tallest_ + 2 * kEdge;
    return std::move(places_);
  }

 private:
  double XOf(size_t column, size_t columns) const {
    if (columns == 1) return (width_ - HostPlace::kWidth) / 2;
    return static_cast<double>(column) * (width_ - HostPlace::kWidth) /
           static_cast<double>(columns - 1);
  }

  // Empty for a host in no rack.
  std::string RackOf(HostRank host) const {
    const HostNetwork& network = drawn_.network();
    return network.has_racks() ? network.racks[network.rack_of_host[host]] : "";
  }

  void PlaceColumn(Column& column, bool in_lines, double x) const {
    double y = 0;
    std::string rack;
    for (HostPlace& host : column) {
      const std::string its = RackOf(host.host);
      if (its != rack || (in_lines && drawn_.network().has_racks())) y += kRackGap;
      rack = its;
      host.box.x = x;
      host.box.y = y;
      y = host.box.bottom() + kGap;
    }
  }

  // Around those next to each other, in columns or in lines.
  void FrameRacks(bool in_lines) {
    const std::vector<HostPlace>& hosts = places_.hosts;
    for (size_t begin = 0, end = 0; begin < hosts.size(); begin = end) {
      const DrawnBox& first = hosts[begin].box;
      const std::string rack = RackOf(hosts[begin].host);
      DrawnBox all = first;
      for (; end < hosts.size() && RackOf(hosts[end].host) == rack; ++end) {
        const DrawnBox& box = hosts[end].box;
        if (in_lines ? box.y != first.y : box.x != first.x) break;
        all.width = std::max(all.right(), box.right()) - all.x;
        all.height = std::max(all.bottom(), box.bottom()) - all.y;
      }
      if (rack.empty()) continue;
      places_.racks.push_back({.name = rack,
                               .box = {.x = all.x - kRackPad,
                                       .y = all.y - kRackPad,
                                       .width = all.width + 2 * kRackPad,
                                       .height = all.height + 2 * kRackPad}});
    }
  }

  const DrawnPlan& drawn_;
  const double width_;
  double tallest_ = 0;
  NetworkPlaces places_;
};

}  // namespace

NetworkPlaces PlaceHosts(const DrawnPlan& drawn, double width) {
  return HostPlacement(drawn, width).Run();
}

}  // namespace crossmesh
