#include "common/mesh/text_scanner.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <string>

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr size_t kAxisNameBytesMax = 32;

bool IsAxisCharacter(char c) {
  return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_';
}

// `text` in quotes; of a long one only what surrounds `position`.
std::string Excerpt(absl::string_view text, size_t position) {
  constexpr size_t kBefore = 60;
  constexpr size_t kBytesMax = 120;
  const size_t begin = text.size() <= kBytesMax || position <= kBefore ? 0 : position - kBefore;
  const absl::string_view shown = text.substr(begin, kBytesMax);
  return absl::StrCat("\"", begin > 0 ? "..." : "", absl::CHexEscape(shown),
                      begin + shown.size() < text.size() ? "..." : "", "\"");
}

// What stands at the front of `rest`: a whole word or number, or one other character.
std::string Found(absl::string_view rest) {
  if (rest.empty()) return "the end";
  constexpr size_t kBytesMax = 40;
  size_t count = 0;
  while (count < rest.size() && count < kBytesMax &&
         (absl::ascii_isalnum(rest[count]) || rest[count] == '_')) {
    ++count;
  }
  return absl::StrCat("\"", absl::CHexEscape(rest.substr(0, std::max<size_t>(count, 1))), "\"");
}

}  // namespace

bool IsAxisName(absl::string_view name) {
  return !name.empty() && name.size() <= kAxisNameBytesMax && absl::ascii_islower(name[0]) &&
         std::all_of(name.begin(), name.end(), IsAxisCharacter);
}

void TextScanner::SkipSpaces() {
  while (position_ < text_.size() && absl::ascii_isspace(text_[position_])) ++position_;
}

absl::string_view TextScanner::TakeBytes(size_t count) {
  last_ = position_;
  position_ += count;
  return text_.substr(last_, count);
}

bool TextScanner::AtEnd() {
  SkipSpaces();
  return rest().empty();
}

bool TextScanner::At(absl::string_view token) {
  SkipSpaces();
  return absl::StartsWith(rest(), token);
}

bool TextScanner::Take(absl::string_view token) {
  if (!At(token)) return false;
  TakeBytes(token.size());
  return true;
}

bool TextScanner::TakeWord(absl::string_view word) {
  if (!At(word)) return false;
  const absl::string_view after = rest().substr(word.size());
  // "once" does not begin with the word "on", and "on=2" is an axis of that name.
  if (!after.empty() && IsAxisCharacter(after[0])) return false;
  if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(after), "=")) return false;
  TakeBytes(word.size());
  return true;
}

absl::string_view TextScanner::TakeWhile(absl::FunctionRef<bool(char)> belongs) {
  SkipSpaces();
  size_t count = 0;
  while (count < rest().size() && belongs(rest()[count])) ++count;
  return TakeBytes(count);
}

absl::StatusOr<int64_t> TextScanner::Integer() {
  const absl::string_view digits = TakeWhile([](char c) { return absl::ascii_isdigit(c); });
  if (digits.empty()) return ErrorAtLast("a number");
  int64_t value = 0;
  if (!absl::SimpleAtoi(digits, &value)) return ErrorAtLast("a number below 2^63");
  return value;
}

absl::StatusOr<absl::string_view> TextScanner::AxisName() {
  const absl::string_view name = TakeWhile(IsAxisCharacter);
  if (!IsAxisName(name)) return ErrorAtLast("an axis name ([a-z][a-z0-9_]{0,31})");
  return name;
}

absl::Status TextScanner::Expect(absl::string_view token) {
  if (Take(token)) return absl::OkStatus();
  return Error(absl::StrCat("\"", token, "\""));
}

absl::Status TextScanner::ExpectEnd() {
  if (AtEnd()) return absl::OkStatus();
  return Error("the end");
}

absl::Status TextScanner::Error(absl::string_view expected) {
  SkipSpaces();
  last_ = position_;
  return ErrorAtLast(expected);
}

absl::Status TextScanner::ErrorAtLast(absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(what_, " ", Excerpt(text_, last_), ", column ",
                                                 last_ + 1, ": expected ", expected, ", found ",
                                                 Found(text_.substr(last_))));
}

}  // namespace crossmesh
