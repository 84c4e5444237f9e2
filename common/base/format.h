// Quantities for people: four significant digits at most, decimal units.

#pragma once

#include "common/base/byte_count.h"

#include <string>

namespace crossmesh {

// "0 B", "999 B", "1.0 kB", "497.8 MB", "-2.5 GB".
std::string FormatBytes(ByteCount bytes);

// "1.2 GB/s"; a rate that is not finite is "-".
std::string FormatRate(double bytes_per_second);

// "0 s", "350 ns", "12.5 us", "3.21 ms", "1.50 s", "2 min 05 s", "3 h 07 min"; not finite is "-".
std::string FormatSeconds(double seconds);

}  // namespace crossmesh
