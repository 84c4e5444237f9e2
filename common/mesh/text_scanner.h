#pragma once

#include <cstddef>
#include <cstdint>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What the parsers of this module's text forms share: reads a text from left to right, skipping
// spaces before each token, and words the errors. Private to the module. Thread-compatible.
class TextScanner {
 public:
  // `what` names the form in errors, e.g. "layout". Both views must outlive the scanner.
  TextScanner(absl::string_view what, absl::string_view text) : what_(what), text_(text) {}

  bool AtEnd();
  // Does `token` come next?
  bool At(absl::string_view token);
  // Takes `token` if it comes next.
  bool Take(absl::string_view token);
  // Takes `word` if it comes next as a whole word that no "=" follows: an axis may be named "on".
  bool TakeWord(absl::string_view word);
  // The longest run, perhaps empty, of characters that `belongs` accepts.
  absl::string_view TakeWhile(absl::FunctionRef<bool(char)> belongs);

  // Decimal digits with a value below 2^63.
  absl::StatusOr<int64_t> Integer();
  // [a-z][a-z0-9_]{0,31}
  absl::StatusOr<absl::string_view> AxisName();
  absl::Status Expect(absl::string_view token);
  absl::Status ExpectEnd();

  // InvalidArgument that shows the text, where the next token stands, and what is there instead of
  // `expected`.
  absl::Status Error(absl::string_view expected);
  // The same for the token that was taken last.
  absl::Status ErrorAtLast(absl::string_view expected);

 private:
  absl::string_view rest() const { return text_.substr(position_); }
  void SkipSpaces();
  absl::string_view TakeBytes(size_t count);

  const absl::string_view what_;
  const absl::string_view text_;
  size_t position_ = 0;
  size_t last_ = 0;  // where the last token begins
};

bool IsAxisName(absl::string_view name);

}  // namespace crossmesh
