#include "common/mesh/data_type.h"

#include "common/base/check.h"

#include <array>

#include <absl/status/status.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

struct Entry {
  absl::string_view name;
  int64_t bytes;
};

// In the order of DataType.
constexpr std::array<Entry, 15> kEntries = {{{"BOOL", 1},
                                             {"U8", 1},
                                             {"I8", 1},
                                             {"F8_E5M2", 1},
                                             {"F8_E4M3", 1},
                                             {"I16", 2},
                                             {"U16", 2},
                                             {"F16", 2},
                                             {"BF16", 2},
                                             {"I32", 4},
                                             {"U32", 4},
                                             {"F32", 4},
                                             {"I64", 8},
                                             {"U64", 8},
                                             {"F64", 8}}};
static_assert(static_cast<size_t>(DataType::kF64) + 1 == kEntries.size());

const Entry& EntryOf(DataType type) {
  const auto index = static_cast<size_t>(type);
  CHECK_LT(index, kEntries.size());
  return kEntries[index];
}

}  // namespace

int64_t ItemBytes(DataType type) { return EntryOf(type).bytes; }

absl::string_view DataTypeName(DataType type) { return EntryOf(type).name; }

absl::StatusOr<DataType> ParseDataType(absl::string_view name) {
  for (size_t i = 0; i < kEntries.size(); ++i) {
    if (kEntries[i].name == name) return static_cast<DataType>(i);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("data type \"", absl::CHexEscape(name.substr(0, 40)), "\": expected one of ",
                   absl::StrJoin(kEntries, ", ", [](std::string* out, const Entry& entry) {
                     absl::StrAppend(out, entry.name);
                   })));
}

}  // namespace crossmesh
