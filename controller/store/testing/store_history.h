#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What a client asked of one object, and what came of it. Times are those of the one who records:
// any that grow.
struct StoreOperation {
  enum class Kind { kGet, kPut, kCompareAndPut };
  enum class Outcome { kDone, kAborted, kUnknown };
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  std::string key;
  int64_t begin = 0;
  int64_t end = kNever;  // of what is unknown: it may still take effect
  Kind kind = Kind::kGet;
  Outcome outcome = Outcome::kDone;
  int64_t required = 0;              // by a compare: the revision, 0 for none
  std::optional<std::string> value;  // put or got; nothing: deleted, or not there
  int64_t revision = 0;              // got, 0 when not there; or of the commit that put

  friend bool operator==(const StoreOperation&, const StoreOperation&) = default;
};

using StoreHistory = std::vector<StoreOperation>;

// Whether all operations can have taken effect one by one, each at one moment between its begin and
// its end, by the search of Wing and Gong with Lowe's memory of what was tried. Objects are looked
// at one by one: a history is linearisable when that of each object is. Cost: exponential in how
// many operations of an object run at the same time.
bool IsLinearisable(const StoreHistory& history);

// Operations of one object, separated by ";":
//   0-3 put a =5         takes from 0 to 3, and gives revision 5; "=?" when that is unknown
//   0-3 del =5
//   0-3 cas 4 a =5       required revision 4; "=aborted" when it did not have it
//   0-3 get a@5          or "get none"
absl::StatusOr<StoreHistory> ParseStoreHistory(absl::string_view text);

std::ostream& operator<<(std::ostream& out, const StoreOperation& operation);

}  // namespace crossmesh
