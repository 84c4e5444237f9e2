#include "controller/store/testing/store_history.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

namespace crossmesh {
namespace {

using Kind = StoreOperation::Kind;
using Outcome = StoreOperation::Outcome;

// An object as it is after some operations.
struct ObjectState {
  static constexpr int64_t kUnknown = -1;  // of a put whose answer nobody has

  std::optional<std::string> value;
  int64_t revision = 0;  // 0: not there
  int64_t newest = 0;    // revisions only grow

  friend auto operator<=>(const ObjectState&, const ObjectState&) = default;

  // Is this its revision? One that is unknown becomes known.
  bool Has(int64_t other) {
    if (revision == kUnknown && other > newest) revision = newest = other;
    return revision == other;
  }
};

// The state after the operation; nothing when it cannot have gone like that.
std::optional<ObjectState> After(ObjectState state, const StoreOperation& operation) {
  if (operation.kind == Kind::kGet) {
    if (state.value != operation.value || !state.Has(operation.revision)) return std::nullopt;
    return state;
  }
  if (operation.kind == Kind::kCompareAndPut) {
    if (operation.outcome == Outcome::kAborted) {
      // What is unknown may be another one.
      if (state.revision == ObjectState::kUnknown) return state;
      return state.revision == operation.required ? std::nullopt : std::optional(state);
    }
    if (!state.Has(operation.required)) {
      return operation.outcome == Outcome::kUnknown ? std::optional(state) : std::nullopt;
    }
  }
  if (operation.outcome == Outcome::kUnknown) {
    state.revision = operation.value.has_value() ? ObjectState::kUnknown : 0;
  } else {
    if (operation.revision <= state.newest) return std::nullopt;
    state.newest = operation.revision;
    state.revision = operation.value.has_value() ? operation.revision : 0;
  }
  state.value = operation.value;
  return state;
}

class Search {
 public:
  explicit Search(StoreHistory history)
      : history_(std::move(history)), done_(history_.size(), false) {}

  bool Succeeds(const ObjectState& state) {
    if (!tried_.emplace(done_, state).second) return false;
    // What began after another has ended comes after it.
    int64_t first_end = StoreOperation::kNever;
    for (size_t i = 0; i < history_.size(); ++i) {
      if (!done_[i]) first_end = std::min(first_end, history_[i].end);
    }
    if (first_end == StoreOperation::kNever) return true;  // the rest need not have happened
    for (size_t i = 0; i < history_.size(); ++i) {
      if (done_[i] || history_[i].begin > first_end) continue;
      const std::optional<ObjectState> next = After(state, history_[i]);
      if (!next.has_value()) continue;
      done_[i] = true;
      if (Succeeds(*next)) return true;
      done_[i] = false;
    }
    return false;
  }

 private:
  const StoreHistory history_;
  std::vector<bool> done_;
  std::set<std::pair<std::vector<bool>, ObjectState>> tried_;
};

absl::StatusOr<int64_t> ParseNumber(absl::string_view text) {
  int64_t number = 0;
  if (absl::SimpleAtoi(text, &number)) return number;
  return absl::InvalidArgumentError(absl::StrCat("expected a number, found '", text, "'"));
}

absl::Status ParseResult(absl::string_view text, StoreOperation& operation) {
  if (text == "=?") {
    operation.outcome = Outcome::kUnknown;
    operation.end = StoreOperation::kNever;
    return absl::OkStatus();
  }
  if (text == "=aborted") {
    operation.outcome = Outcome::kAborted;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(operation.revision, ParseNumber(text.substr(1)));
  return absl::OkStatus();
}

absl::Status ParseGet(absl::string_view text, StoreOperation& operation) {
  if (text == "none") return absl::OkStatus();
  const std::pair<std::string, std::string> got = absl::StrSplit(text, '@');
  operation.value = got.first;
  ASSIGN_OR_RETURN(operation.revision, ParseNumber(got.second));
  return absl::OkStatus();
}

absl::StatusOr<StoreOperation> ParseOperation(absl::string_view text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  if (words.size() < 3) return absl::InvalidArgumentError(text);
  const std::pair<std::string, std::string> times = absl::StrSplit(words[0], '-');
  StoreOperation operation = {.key = "k"};
  ASSIGN_OR_RETURN(operation.begin, ParseNumber(times.first));
  ASSIGN_OR_RETURN(operation.end, ParseNumber(times.second));
  if (words[1] == "get") {
    RETURN_IF_ERROR(ParseGet(words[2], operation));
    return operation;
  }
  operation.kind = words[1] == "cas" ? Kind::kCompareAndPut : Kind::kPut;
  if (words[1] == "cas") {
    ASSIGN_OR_RETURN(operation.required, ParseNumber(words[2]));
  }
  if (words[1] != "del") operation.value = words[words.size() - 2];
  RETURN_IF_ERROR(ParseResult(words.back(), operation));
  return operation;
}

}  // namespace

bool IsLinearisable(const StoreHistory& history) {
  std::map<std::string, StoreHistory> by_key;
  for (const StoreOperation& operation : history) by_key[operation.key].push_back(operation);
  return std::ranges::all_of(by_key, [](auto& entry) {
    // In the order in which most of them took effect.
    std::ranges::stable_sort(entry.second, {}, &StoreOperation::begin);
    return Search(entry.second).Succeeds({});
  });
}

absl::StatusOr<StoreHistory> ParseStoreHistory(absl::string_view text) {
  StoreHistory history;
  for (const absl::string_view part : absl::StrSplit(text, ';', absl::SkipWhitespace())) {
    ASSIGN_OR_RETURN(StoreOperation operation, ParseOperation(part));
    history.push_back(std::move(operation));
  }
  return history;
}

std::ostream& operator<<(std::ostream& out, const StoreOperation& operation) {
  out << operation.begin << "-";
  if (operation.end == StoreOperation::kNever) {
    out << "never";
  } else {
    out << operation.end;
  }
  const std::string value = operation.value.value_or("none");
  if (operation.kind == Kind::kGet) return out << " get " << value << "@" << operation.revision;
  out << (operation.kind == Kind::kPut ? " put " : " cas ");
  if (operation.kind == Kind::kCompareAndPut) out << operation.required << " ";
  out << value << " =";
  switch (operation.outcome) {
    case Outcome::kDone:
      return out << operation.revision;
    case Outcome::kAborted:
      return out << "aborted";
    case Outcome::kUnknown:
      return out << "?";
  }
  return out;
}

}  // namespace crossmesh
