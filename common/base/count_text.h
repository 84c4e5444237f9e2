#pragma once

#include <cstdint>
#include <string>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// "1 microbatch", "4 microbatches", for people.
inline std::string CountText(int64_t count, absl::string_view one, absl::string_view many) {
  return absl::StrCat(count, " ", count == 1 ? one : many);
}

}  // namespace crossmesh
