#pragma once

#include "common/mesh/data_type.h"
#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "common/mesh/name_pattern.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What the rules say of one tensor.
struct RuleMatch {
  Layout layout;
  Coordinates coordinates;       // the sub-mesh that holds the tensor; empty means the whole mesh
  std::optional<DataType> type;  // of the tensor there; nothing: as it is
  int line = 0;                  // of the rule in its text, from 1, to be named in later errors
  friend bool operator==(const RuleMatch&, const RuleMatch&) = default;
};

// Layouts of tensors by name pattern: rules in order, of which the first that matches holds.
// Immutable. Text form, one rule per line (docs/text-forms.md):
//
//   # experts are spread over the axis expert, four to a coordinate
//   model.layers.{l}.mlp.experts.{e}.up_proj.weight  [tensor, -]  on expert={e}/4
//   *.norm.weight                                    [-]  as F32
//   *                                                [data, ...] nested_chunk
class LayoutRules {
 public:
  // InvalidArgument: malformed text; the message has the line.
  static absl::StatusOr<LayoutRules> Parse(absl::string_view text);

  // The layout of a tensor, with "..." expanded for its rank. NotFound, naming the tensor, when no
  // rule matches; InvalidArgument when the rule that matches is for tensors of another rank. Cost:
  // linear in the rules.
  absl::StatusOr<RuleMatch> Match(absl::string_view tensor, int rank) const;

 private:
  // AXIS=NUMBER or AXIS={CAPTURE}/DIVISOR
  struct Coordinate {
    std::string axis;
    std::optional<size_t> capture;  // its place in the pattern's captures
    int64_t value = 0;              // when nothing is captured
    int64_t divisor = 1;
  };

  struct Rule {
    int line = 0;
    NamePattern pattern;
    Layout layout;
    std::optional<size_t> ellipsis;  // where in an axis layout's dimensions "..." stands
    std::vector<Coordinate> coordinates;
    std::optional<DataType> type;
  };

  friend class LayoutRuleParser;

  static absl::StatusOr<Layout> LayoutForRank(const Rule& rule, absl::string_view tensor, int rank);

  std::vector<Rule> rules_;
};

}  // namespace crossmesh
