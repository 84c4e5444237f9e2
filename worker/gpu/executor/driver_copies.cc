#include "worker/gpu/executor/driver_copies.h"

#include <algorithm>
#include <cstddef>

namespace crossmesh {
namespace {

// A place in the packed bytes of boxes, and in memory.
class BoxPlace {
 public:
  BoxPlace(std::span<const KernelBox> boxes, int64_t position) : boxes_(boxes) {
    const auto after = std::ranges::upper_bound(boxes, position, {}, &KernelBox::packed_offset);
    box_ = after - boxes.begin() - 1;
    offset_ = position - box().packed_offset;
  }

  uint64_t address() const {
    return box().address + offset_ / box().row_bytes * box().pitch_bytes + column();
  }
  int64_t row_left() const { return box().row_bytes - column(); }

  // How many rows of so many bytes, which are no more than the row has left, follow each other from
  // here on, and at which distance.
  struct Rows {
    int64_t count = 1;
    int64_t pitch_bytes = 0;
  };
  Rows RowsOf(int64_t bytes) const {
    if (bytes < row_left()) return {.count = row_left() / bytes, .pitch_bytes = bytes};
    const int64_t pitch_bytes = box().pitch_bytes;
    const bool is_distance = pitch_bytes >= bytes && pitch_bytes <= DeviceCopy::kPitchBytesMax;
    if (column() > 0 || !is_distance) return {.pitch_bytes = bytes};
    return {.count = box().rows - offset_ / box().row_bytes, .pitch_bytes = pitch_bytes};
  }

  // Within the box, or to the beginning of the next one.
  void Advance(int64_t bytes) {
    offset_ += bytes;
    if (offset_ < box().rows * box().row_bytes) return;
    ++box_;
    offset_ = 0;
  }

 private:
  const KernelBox& box() const { return boxes_[box_]; }
  int64_t column() const { return offset_ % box().row_bytes; }

  std::span<const KernelBox> boxes_;
  ptrdiff_t box_ = 0;
  int64_t offset_ = 0;  // in the box, packed
};

// The most rows that can be copied at once from one place to the other.
DeviceCopy NextCopy(const BoxPlace& from, const BoxPlace& to, int64_t left) {
  const int64_t row_bytes = std::min({from.row_left(), to.row_left(), left});
  const BoxPlace::Rows read = from.RowsOf(row_bytes);
  const BoxPlace::Rows written = to.RowsOf(row_bytes);
  return {.from = from.address(),
          .to = to.address(),
          .row_bytes = row_bytes,
          .rows = std::min({read.count, written.count, left / row_bytes}),
          .from_pitch_bytes = read.pitch_bytes,
          .to_pitch_bytes = written.pitch_bytes};
}

}  // namespace

std::optional<std::vector<DeviceCopy>> DriverCopiesOf(std::span<const KernelBox> sources,
                                                      std::span<const KernelBox> destinations,
                                                      Interval range,
                                                      const DriverCopyLimits& limits) {
  const int64_t copies_max = range.length() / limits.bytes_of_copy_min;
  BoxPlace from(sources, range.begin);
  BoxPlace to(destinations, range.begin);
  std::vector<DeviceCopy> copies;
  for (int64_t left = range.length(); left > 0;) {
    if (std::ssize(copies) == copies_max) return std::nullopt;
    const DeviceCopy copy = NextCopy(from, to, left);
    if (copy.rows > 1 && copy.row_bytes < limits.row_bytes_min) return std::nullopt;
    copies.push_back(copy);
    from.Advance(copy.bytes());
    to.Advance(copy.bytes());
    left -= copy.bytes();
  }
  return copies;
}

}  // namespace crossmesh
