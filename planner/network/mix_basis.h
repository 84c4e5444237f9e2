#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace crossmesh {

// The shares of columns that keep the fullest of several ports as empty as possible: the revised
// simplex method (Dantzig 1953) for
//
//   minimise time, where   shares of the columns of each group add up to 1
//                          load of a port = fixed load + sum of share * load of a column <= time
//
// whose columns come one by one: prices of ports say which column would help. One column of each
// group, its key, has what the others leave of the share, so that groups take no rows (generalised
// upper bounds, Dantzig and Van Slyke 1967). At most as many columns have a share as there are
// groups and full ports. Deterministic. Thread-compatible.
class MixBasis {
 public:
  struct Column {
    int32_t group = 0;
    std::vector<std::pair<int32_t, double>> loads;  // (port, load), each port once
  };

  // `first` has a column for each group, in order: those that have all of the share at first.
  // Loads should be of about the size of the least time. Needs a port.
  MixBasis(std::vector<double> fixed_loads, std::vector<Column> first);

  double time() const { return values_[time_row_]; }
  // Of a unit of load on a port; they add up to 1.
  double Price(int32_t port) const { return -inverse_[At(time_row_, port)]; }
  // What a share of 1 of the column pays.
  double PriceOf(const Column& column) const;
  // What the group pays for a share of 1 at present: a column that costs less helps.
  double PriceOfGroup(int32_t group) const { return PriceOf(columns_[key_[group]]); }

  // Adds a column that helps, numbered after all others, those of `first` among them, and gives it
  // the share with which time is least. False, and nothing added, when rounding errors are in the
  // way. Cost: ports^2 + groups, as of the next.
  bool Add(Column column);
  // Leaves room at a port whose price is below 0, if there is one.
  bool Relieve();

  // (column, share), ascending; shares of a group add up to 1 but for rounding.
  std::vector<std::pair<int32_t, double>> Shares() const;

 private:
  // What a row's variable is, beside the number of a column.
  static constexpr int32_t kTime = -1;
  static constexpr int32_t kRoom = -2;  // that of port p: kRoom - p
  static constexpr int32_t kNone = -1;

  size_t At(int32_t row, int32_t column) const {
    return static_cast<size_t>(row) * static_cast<size_t>(ports_) + static_cast<size_t>(column);
  }
  // The group of the row's variable, or kNone.
  int32_t GroupOf(int32_t row) const {
    return variable_[row] < 0 ? kNone : columns_[variable_[row]].group;
  }
  int32_t FindRow(int32_t group) const;
  // How fast each row's variable shrinks as this one grows.
  std::vector<double> DirectionOf(int32_t variable) const;
  bool Enter(int32_t variable);
  void SwapKey(int32_t group, int32_t row);
  void Pivot(int32_t row, int32_t variable, std::span<const double> direction);

  const int32_t ports_;  // and rows
  int32_t time_row_ = 0;
  std::vector<Column> columns_;
  std::vector<int32_t> key_;       // by group: a column
  std::vector<double> key_share_;  // likewise
  std::vector<double> inverse_;    // of the basis, row by row
  std::vector<int32_t> variable_;  // in the basis, by row
  std::vector<double> values_;     // likewise
};

}  // namespace crossmesh
