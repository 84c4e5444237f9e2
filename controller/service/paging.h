#pragma once

#include <cstdint>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

inline constexpr int32_t kPageSizeDefault = 100;
inline constexpr int32_t kPageSizeMax = 1000;

// InvalidArgument unless `page_size` is from 0, which stands for the default, to kPageSizeMax. Page
// tokens are the last name of the page before: names have no secrets, and pages survive changes.
inline absl::StatusOr<int32_t> PageSize(int32_t page_size) {
  if (page_size == 0) return kPageSizeDefault;
  if (page_size > 0 && page_size <= kPageSizeMax) return page_size;
  return absl::InvalidArgumentError(
      absl::StrCat("page_size: expected 0 to ", kPageSizeMax, ", found ", page_size));
}

}  // namespace crossmesh
