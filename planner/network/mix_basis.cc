#include "planner/network/mix_basis.h"

#include <algorithm>
#include <cmath>

namespace crossmesh {
namespace {

constexpr double kBasisTolerance = 1e-9;
// Slightly different right sides let no two variables reach 0 at once, so that every step gains.
constexpr double kDisturbance = 1e-8;

double Disturbance(size_t row) {
  const double golden = 0.6180339887498949 * static_cast<double>(row + 1);
  return kDisturbance * (1 + golden - std::floor(golden));
}

}  // namespace

MixBasis::MixBasis(std::vector<double> fixed_loads, std::vector<Column> first)
    : ports_(static_cast<int32_t>(fixed_loads.size())),
      columns_(std::move(first)),
      inverse_(fixed_loads.size() * fixed_loads.size()),
      values_(fixed_loads.size()) {
  for (int32_t port = 0; port < ports_; ++port) {
    inverse_[At(port, port)] = 1;
    values_[port] = Disturbance(port) - fixed_loads[port];
    variable_.push_back(kRoom - port);
  }
  for (size_t group = 0; group < columns_.size(); ++group) {
    key_.push_back(static_cast<int32_t>(group));
    key_share_.push_back(1 + Disturbance(values_.size() + group));
    for (const auto& [port, load] : columns_[group].loads) {
      values_[port] -= load * key_share_[group];
    }
  }
  // Time makes room at all ports alike; the fullest one needs all of it.
  time_row_ = static_cast<int32_t>(std::ranges::min_element(values_) - values_.begin());
  Pivot(time_row_, kTime, std::vector<double>(ports_, -1));
}

double MixBasis::PriceOf(const Column& column) const {
  double price = 0;
  for (const auto& [port, load] : column.loads) price += load * Price(port);
  return price;
}

bool MixBasis::Add(Column column) {
  columns_.push_back(std::move(column));
  if (Enter(static_cast<int32_t>(columns_.size()) - 1)) return true;
  columns_.pop_back();
  return false;
}

bool MixBasis::Relieve() {
  int32_t least = 0;
  for (int32_t port = 1; port < ports_; ++port) {
    if (Price(port) < Price(least)) least = port;
  }
  return Price(least) < -kBasisTolerance && Enter(kRoom - least);
}

int32_t MixBasis::FindRow(int32_t group) const {
  for (int32_t row = 0; row < ports_; ++row) {
    if (GroupOf(row) == group) return row;
  }
  return kNone;
}

std::vector<double> MixBasis::DirectionOf(int32_t variable) const {
  std::vector<double> direction(ports_);
  const auto add = [&](int32_t port, double load) {
    for (int32_t row = 0; row < ports_; ++row) direction[row] += inverse_[At(row, port)] * load;
  };
  // Room at a port is a unit column; a share enters as the difference from its group's key, which
  // gives up as much as the other gains.
  if (variable < 0) {
    add(kRoom - variable, 1);
  } else {
    const Column& column = columns_[variable];
    for (const auto& [port, load] : column.loads) add(port, load);
    for (const auto& [port, load] : columns_[key_[column.group]].loads) add(port, -load);
  }
  return direction;
}

// The first share or room to reach 0 leaves; a key leaves as another column of its group takes its
// place.
bool MixBasis::Enter(int32_t variable) {
  std::vector<double> direction = DirectionOf(variable);
  std::vector<double> key_loss(key_.size());
  if (variable >= 0) key_loss[columns_[variable].group] = 1;
  int32_t leaving = kNone, leaving_key = kNone;
  double least = 0;
  for (int32_t row = 0; row < ports_; ++row) {
    if (GroupOf(row) != kNone) key_loss[GroupOf(row)] -= direction[row];
    // Time is what is minimised: it may fall, and never leaves the basis.
    if (row == time_row_ || direction[row] <= kBasisTolerance) continue;
    const double step = std::max(0.0, values_[row]) / direction[row];
    if (leaving == kNone || step < least) leaving = row, least = step;
  }
  for (size_t group = 0; group < key_.size(); ++group) {
    if (key_loss[group] <= kBasisTolerance) continue;
    const double step = std::max(0.0, key_share_[group]) / key_loss[group];
    if ((leaving == kNone && leaving_key == kNone) || step < least) {
      leaving_key = static_cast<int32_t>(group), least = step;
    }
  }
  if (leaving_key != kNone) {
    leaving = FindRow(leaving_key);
    if (leaving == kNone) {  // the group's only column: this one takes all of its share
      for (int32_t row = 0; row < ports_; ++row) values_[row] -= least * direction[row];
      for (size_t group = 0; group < key_.size(); ++group) {
        key_share_[group] -= least * key_loss[group];
      }
      key_[leaving_key] = variable;
      key_share_[leaving_key] = least;
      return true;
    }
    // A key cannot leave while another column of its group is measured against it: first that one
    // becomes the key.
    std::swap(key_loss[leaving_key], direction[leaving]);
    SwapKey(leaving_key, leaving);
    direction = DirectionOf(variable);
  }
  if (leaving == kNone) return false;
  for (size_t group = 0; group < key_.size(); ++group) key_share_[group] -= least * key_loss[group];
  Pivot(leaving, variable, direction);
  return true;
}

// The basis has differences between columns and their keys: with the other key, that of `row`
// changes its sign, and is taken from those of the group's other columns.
void MixBasis::SwapKey(int32_t group, int32_t row) {
  double* const swapped = &inverse_[At(row, 0)];
  for (int32_t other = 0; other < ports_; ++other) {
    if (other == row || GroupOf(other) != group) continue;
    for (int32_t c = 0; c < ports_; ++c) swapped[c] += inverse_[At(other, c)];
  }
  for (int32_t c = 0; c < ports_; ++c) swapped[c] = -swapped[c];
  std::swap(variable_[row], key_[group]);
  std::swap(values_[row], key_share_[group]);
}

void MixBasis::Pivot(int32_t row, int32_t variable, std::span<const double> direction) {
  double* const pivot_row = &inverse_[At(row, 0)];
  for (int32_t c = 0; c < ports_; ++c) pivot_row[c] /= direction[row];
  values_[row] /= direction[row];
  variable_[row] = variable;
  for (int32_t r = 0; r < ports_; ++r) {
    if (r == row || direction[r] == 0) continue;
    double* const other = &inverse_[At(r, 0)];
    for (int32_t c = 0; c < ports_; ++c) other[c] -= direction[r] * pivot_row[c];
    values_[r] -= direction[r] * values_[row];
  }
}

std::vector<std::pair<int32_t, double>> MixBasis::Shares() const {
  std::vector<std::pair<int32_t, double>> shares;
  const auto add = [&shares](int32_t column, double share) {
    if (share > kBasisTolerance) shares.emplace_back(column, share);
  };
  for (int32_t row = 0; row < ports_; ++row) {
    if (variable_[row] >= 0) add(variable_[row], values_[row]);
  }
  for (size_t group = 0; group < key_.size(); ++group) add(key_[group], key_share_[group]);
  std::ranges::sort(shares);
  return shares;
}

}  // namespace crossmesh
