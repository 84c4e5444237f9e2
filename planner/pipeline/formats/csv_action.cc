#include "planner/pipeline/formats/csv_action.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <array>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/escaping.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

namespace crossmesh {
namespace {

using Kind = CsvAction::Kind;

struct Word {
  absl::string_view text;
  Kind kind;
  OpKind op = OpKind::kForward;
};

constexpr std::array<Word, 11> kWords = {{{"F", Kind::kCompute, OpKind::kForward},
                                          {"B", Kind::kCompute, OpKind::kBackward},
                                          {"I", Kind::kCompute, OpKind::kInputGradient},
                                          {"W", Kind::kCompute, OpKind::kWeightGradient},
                                          {"SEND_F", Kind::kSend, OpKind::kForward},
                                          {"RECV_F", Kind::kReceive, OpKind::kForward},
                                          {"SEND_B", Kind::kSend, OpKind::kBackward},
                                          {"RECV_B", Kind::kReceive, OpKind::kBackward},
                                          {"UNSHARD", Kind::kUnshard},
                                          {"RESHARD", Kind::kReshard},
                                          {"REDUCE_GRAD", Kind::kReduceGradient}}};

constexpr absl::string_view kPairBegin = "(", kPairEnd = ")OVERLAP_F_B";

bool HasMicrobatch(Kind kind) {
  return kind == Kind::kCompute || kind == Kind::kSend || kind == Kind::kReceive;
}

absl::Status Unexpected(absl::string_view expected, absl::string_view found) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", expected, ", found \"",
                                                 absl::CHexEscape(found.substr(0, 80)), "\""));
}

absl::StatusOr<CsvAction> ParseAction(absl::string_view text) {
  constexpr absl::string_view kDigits = "0123456789";
  // Stage, word, microbatch: digits, then no digits, then digits.
  const size_t begin = std::min(text.find_first_not_of(kDigits), text.size());
  const size_t end = std::min(text.find_first_of(kDigits, begin), text.size());
  const auto word = std::ranges::find(kWords, text.substr(begin, end - begin), &Word::text);
  CsvAction action;
  if (word == kWords.end() || text.find_first_not_of(kDigits, end) != absl::string_view::npos ||
      !absl::SimpleAtoi(text.substr(0, begin), &action.op.stage) ||
      (HasMicrobatch(word->kind) ? !absl::SimpleAtoi(text.substr(end), &action.op.microbatch)
                                 : end != text.size())) {
    return Unexpected("an action such as 3F7, 3SEND_F7 or 3UNSHARD", text);
  }
  action.kind = word->kind;
  action.op.kind = word->op;
  return action;
}

bool IsRunOf(const CsvAction& action, bool forward) {
  return action.kind == Kind::kCompute &&
         (forward ? action.op.kind == OpKind::kForward : GivesInputGradient(action.op.kind));
}

}  // namespace

std::string ToString(const CsvAction& action) {
  const auto word = std::ranges::find_if(kWords, [&](const Word& known) {
    return known.kind == action.kind && (!HasMicrobatch(known.kind) || known.op == action.op.kind);
  });
  std::string text = absl::StrCat(action.op.stage, word->text);
  if (HasMicrobatch(action.kind)) absl::StrAppend(&text, action.op.microbatch);
  return text;
}

std::string ToCsvCell(const Op& forward, const Op& backward) {
  return absl::StrCat(kPairBegin, ToString(CsvAction{.op = forward}), ";",
                      ToString(CsvAction{.op = backward}), kPairEnd);
}

absl::StatusOr<std::vector<CsvAction>> ParseCsvCell(absl::string_view cell) {
  absl::string_view pair = cell;
  if (!absl::ConsumePrefix(&pair, kPairBegin)) {
    ASSIGN_OR_RETURN(const CsvAction action, ParseAction(cell));
    return std::vector{action};
  }
  constexpr absl::string_view kExpected = "a pair such as (0F7;3B3)OVERLAP_F_B";
  const std::vector<absl::string_view> texts = absl::StrSplit(pair, ';');
  absl::string_view last = texts.back();
  if (texts.size() != 2 || !absl::ConsumeSuffix(&last, kPairEnd)) {
    return Unexpected(kExpected, cell);
  }
  ASSIGN_OR_RETURN(CsvAction forward, ParseAction(texts[0]));
  ASSIGN_OR_RETURN(const CsvAction backward, ParseAction(last));
  if (!IsRunOf(forward, true) || !IsRunOf(backward, false)) return Unexpected(kExpected, cell);
  forward.op.is_fused = true;
  return std::vector{forward, backward};
}

}  // namespace crossmesh
