#include "common/base/format.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

std::string FormatDecimal(double bytes) {
  static constexpr std::array<const char*, 7> kUnits = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  std::size_t unit = 0;
  // 999.95 would round up to "1000.0", so it goes to the next unit.
  while (std::abs(bytes) >= (unit == 0 ? 999.5 : 999.95) && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  const int digits = unit == 0 ? 0 : 1;
  return absl::StrFormat("%.*f %s", digits, bytes, kUnits[unit]);
}

}  // namespace

std::string FormatBytes(ByteCount bytes) {
  return FormatDecimal(static_cast<double>(bytes.value()));
}

std::string FormatRate(double bytes_per_second) {
  if (!std::isfinite(bytes_per_second)) return "-";
  return absl::StrCat(FormatDecimal(bytes_per_second), "/s");
}

std::string FormatSeconds(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (seconds < 0) return absl::StrCat("-", FormatSeconds(-seconds));
  if (seconds == 0) return "0 s";
  // Each bound is where the next smaller form would round up out of its range.
  if (seconds < 999.5e-9) return absl::StrFormat("%.0f ns", seconds * 1e9);
  if (seconds < 999.95e-6) return absl::StrFormat("%.1f us", seconds * 1e6);
  if (seconds < 999.995e-3) return absl::StrFormat("%.2f ms", seconds * 1e3);
  if (seconds < 59.995) return absl::StrFormat("%.2f s", seconds);
  if (seconds < 3599.5) {
    const auto whole = static_cast<int64_t>(std::llround(seconds));
    return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
  }
  const double minutes = std::round(seconds / 60);
  return absl::StrFormat("%.0f h %02.0f min", std::floor(minutes / 60), std::fmod(minutes, 60));
}

}  // namespace crossmesh
