#include "client/cli/redistribution_program.h"

#include "client/cli/cli.h"
#include "common/base/status_macros.h"

#include <algorithm>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/str_split.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

constexpr absl::string_view kDigits = "from digits import _digit, _factors, _size  # copied in\n";
constexpr absl::string_view kProgram = "PROGRAM = None\n";

nlohmann::json AtomsOf(const TypeSpace& space) {
  nlohmann::json atoms = nlohmann::json::array();
  for (int32_t atom = 0; atom < space.atom_count(); ++atom) {
    atoms.push_back({{"name", ToString(space.atoms()[atom], space.axes())},
                     {"size", space.atoms()[atom].size},
                     {"stride", space.device_stride(atom)}});
  }
  return atoms;
}

// By part the intervals of indices, which a relay looks up.
nlohmann::json PartsOf(const TypeSpace& space, const LocalType& type, int dimension) {
  nlohmann::json parts = nlohmann::json::array();
  for (int64_t part = 0; part < space.Parts(type.dimensions[dimension]); ++part) {
    nlohmann::json intervals = nlohmann::json::array();
    for (const Interval& indices : space.IndicesOf(type, dimension, part)) {
      intervals.push_back({indices.begin, indices.end});
    }
    parts.push_back(std::move(intervals));
  }
  return parts;
}

nlohmann::json TypeOf(const TypeSpace& space, const LocalType& type, bool with_parts) {
  nlohmann::json dimensions = nlohmann::json::array();
  for (size_t d = 0; d < type.dimensions.size(); ++d) {
    nlohmann::json cuts = nlohmann::json::array();
    for (const DimensionCut& cut : type.dimensions[d]) cuts.push_back({cut.atom, cut.stride});
    nlohmann::json& dimension = dimensions.emplace_back(nlohmann::json{{"cuts", std::move(cuts)}});
    if (with_parts) dimension["parts"] = PartsOf(space, type, static_cast<int>(d));
  }
  return {{"dimensions", std::move(dimensions)}, {"partial", type.partial}};
}

nlohmann::json StepOf(const TypeSpace& space, const RedistributionStep& step) {
  const bool is_relay = step.kind == StepKind::kRelay;
  nlohmann::json entry = {{"kind", std::string(StepKindName(step.kind))},
                          {"atoms", step.atoms},
                          {"group", step.group},
                          {"before", TypeOf(space, step.before, is_relay)},
                          {"after", TypeOf(space, step.after, is_relay)}};
  if (step.kind == StepKind::kPermute) {
    entry["sources"] = PermuteSources(space, step.before, step.after);
  }
  return entry;
}

// How many summands a mean is of.
int64_t Summands(const TypeSpace& space) {
  int64_t summands = 1;
  for (const int32_t atom : space.source().partial) {
    const std::vector<int32_t>& left = space.destination().partial;
    if (std::ranges::find(left, atom) == left.end()) summands *= space.atoms()[atom].size;
  }
  return summands;
}

nlohmann::json ProgramOf(const Derivation& derivation) {
  const TypeSpace& space = derivation.space();
  nlohmann::json steps = nlohmann::json::array();
  for (const RedistributionStep& step : derivation.steps()) steps.push_back(StepOf(space, step));
  return {{"ranks", space.devices()},
          {"atoms", AtomsOf(space)},
          {"reduction", std::string(PartialReductionName(space.reduction()))},
          {"summands", Summands(space)},
          {"source", TypeOf(space, space.source(), /*with_parts=*/false)},
          {"destination", TypeOf(space, space.destination(), /*with_parts=*/false)},
          {"steps", std::move(steps)}};
}

// The typed form, as comments.
std::string Comments(const Derivation& derivation) {
  std::string comments;
  for (const absl::string_view line : absl::StrSplit(derivation.Text(), '\n', absl::SkipEmpty())) {
    absl::StrAppend(&comments, "# ", line, "\n");
  }
  return comments;
}

// Without the text that says what the file is.
absl::StatusOr<std::string> DigitsText() {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(SharedFile("emit/digits.py")));
  const size_t begin = text.find("def ");
  return begin == std::string::npos ? text : text.substr(begin);
}

}  // namespace

absl::StatusOr<std::string> EmitProgram(const Derivation& derivation, absl::string_view framework) {
  if (framework != "torch" && framework != "jax") {
    return absl::InvalidArgumentError(
        absl::StrCat("--emit: expected torch or jax, found \"", framework, "\""));
  }
  const bool has_relay = std::ranges::any_of(
      derivation.steps(),
      [](const RedistributionStep& step) { return step.kind == StepKind::kRelay; });
  if (framework == "jax" && has_relay) {
    return absl::InvalidArgumentError(
        "--emit jax: expected collectives, found a relay, for which JAX has none (--no-relay plans "
        "without)");
  }
  ASSIGN_OR_RETURN(const std::string text,
                   ReadFile(SharedFile(absl::StrCat("emit/redistribution_", framework, ".py"))));
  ASSIGN_OR_RETURN(const std::string digits, DigitsText());
  const std::string program =
      absl::StrCat(Comments(derivation), "PROGRAM = ", ProgramOf(derivation).dump(), "\n");
  return absl::StrReplaceAll(text, {{kDigits, absl::StrCat("\n", digits)}, {kProgram, program}});
}

}  // namespace crossmesh
