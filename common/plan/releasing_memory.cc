#include "common/plan/releasing_memory.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Rows that are looked at one by one; of more of them the bounds count that hold wherever they lie.
constexpr int64_t kRowsMax = 64;

int64_t DownToPage(int64_t bytes) { return bytes / kPageBytes * kPageBytes; }
int64_t UpToPage(int64_t bytes) { return DownToPage(bytes + kPageBytes - 1); }

// One side of a device: where its tiles lie.
class SideRows {
 public:
  SideRows(const TensorTable& whole, Side side, DeviceRank device)
      : side_(side), layout_(LayOut(whole, side, device)) {}

  int64_t bytes() const { return UpToPage(layout_.bytes); }

  // What an instance has of a tensor.
  PageRows Of(const CourseTables& course, const DeviceId& device, int32_t instance,
              int32_t tensor) const {
    const size_t of_instance = course.tensors.size() / course.instances;
    const int64_t offset =
        layout_.offset_of_tensor[course.tensors[instance * of_instance + tensor]];
    const auto& step = side_ == Side::kSource ? course.steps.front() : course.steps.back();
    const std::optional<DeviceRank> rank = step.table->FindDevice(device);
    if (offset < 0 || !rank.has_value()) return {};
    const int32_t group = step.table->group_of_tensor()[tensor];
    const TileRows rows = RowsOf(*step.table, side_, group, *rank);
    const int64_t slabs = step.table->groups()[group].slab.slabs;
    return {.begin = offset + instance % slabs * rows.row_bytes,
            .row_bytes = rows.row_bytes,
            .pitch = slabs * rows.row_bytes,
            .rows = rows.rows()};
  }

 private:
  const Side side_;
  const StorageLayout layout_;
};

}  // namespace

int64_t PageRows::inside() const {
  if (row_bytes < kPageBytes) return 0;
  if (begin % kPageBytes == 0 && row_bytes % kPageBytes == 0) return rows * row_bytes;
  if (rows > kRowsMax) return rows * (DownToPage(row_bytes + 1) - kPageBytes);
  int64_t bytes = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = begin + row * pitch;
    bytes += std::max<int64_t>(0, DownToPage(first + row_bytes) - UpToPage(first));
  }
  return bytes;
}

int64_t PageRows::touched() const {
  if (rows == 0 || row_bytes == 0) return 0;
  if (begin % kPageBytes == 0 && row_bytes % kPageBytes == 0) return rows * row_bytes;
  const int64_t whole = UpToPage(begin + (rows - 1) * pitch + row_bytes) - DownToPage(begin);
  if (rows > kRowsMax) {
    return std::min(whole, rows * (DownToPage(row_bytes + kPageBytes - 2) + kPageBytes));
  }
  int64_t bytes = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = begin + row * pitch;
    bytes += UpToPage(first + row_bytes) - DownToPage(first);
  }
  return std::min(whole, bytes);
}

bool ReleasesSource(std::span<const CourseTables> courses) {
  return std::ranges::any_of(courses, &CourseTables::releases_source);
}

absl::Status ProveReleasing(std::span<const CourseTables> courses, BindingMode binding,
                            bool shared_storage) {
  if (!ReleasesSource(courses)) return absl::OkStatus();
  if (!std::ranges::all_of(courses, &CourseTables::releases_source)) {
    return absl::InternalError("courses: expected all of them to release the source, or none");
  }
  if (binding == BindingMode::kInPlace && !shared_storage) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("release of the source: expected binding in_place and another storage than the "
                   "destination's, found binding ",
                   BindingModeName(binding), shared_storage ? " and one storage" : ""));
}

int64_t ReleasingPeakBytes(const TensorTable& whole, std::span<const CourseTables> courses,
                           const DeviceId& device) {
  const std::optional<DeviceRank> rank = whole.FindDevice(device);
  if (!rank.has_value()) return 0;
  const SideRows source(whole, Side::kSource, *rank);
  const SideRows destination(whole, Side::kDestination, *rank);
  int64_t left = source.bytes();
  int64_t filled = 0;
  int64_t peak = left;
  for (const CourseTables& course : courses) {
    const auto tensors = static_cast<int32_t>(course.tensors.size()) / course.instances;
    const int64_t arrays = CourseMemory(course, device).bytes();
    // Elsewhere a destination is filled after the first step has moved, and so in order.
    const bool fills_at_once = course.steps.size() == 1 && !course.steps[0].reduction.has_value();
    const int32_t ahead = fills_at_once ? course.buffers : 0;
    std::vector<int64_t> released(course.instances);
    // Arrays are filled before anything of the first instance is released.
    peak = std::max(peak, left + filled + arrays);
    for (int32_t i = 0; i < course.instances; ++i) {
      for (int32_t t = 0; t < tensors; ++t) {
        filled += destination.Of(course, device, i, t).touched();
        released[i] += source.Of(course, device, i, t).inside();
      }
      filled = std::min(filled, destination.bytes());
      if (i >= ahead) left -= released[i - ahead];
      peak = std::max(peak, left + filled + arrays);
    }
    for (int32_t i = std::max(0, course.instances - ahead); i < course.instances; ++i) {
      left -= released[i];
    }
  }
  return peak;
}

}  // namespace crossmesh
