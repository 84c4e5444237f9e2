#include "planner/parallelism/training.h"

#include <array>
#include <cmath>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

constexpr std::array<absl::string_view, 3> kRecomputes = {"none", "selective", "full"};
constexpr std::array<absl::string_view, 3> kContextMethods = {"ring", "all_gather", "ulysses"};
constexpr std::array<absl::string_view, 5> kSchedules = {"gpipe", "1f1b", "eager_1f1b",
                                                         "interleaved_1f1b", "zb_h1"};
constexpr std::array<absl::string_view, 2> kForms = {"replicated", "scattered"};
constexpr std::array<absl::string_view, 2> kVectorForms = {"replicated", "diagonal"};

template <typename Enum, size_t kCount>
absl::StatusOr<Enum> ParseName(absl::string_view what,
                               const std::array<absl::string_view, kCount>& names,
                               absl::string_view text) {
  for (size_t i = 0; i < kCount; ++i) {
    if (names[i] == text) return static_cast<Enum>(i);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      what, ": expected one of ", absl::StrJoin(names, ", "), ", found \"", text, "\""));
}

}  // namespace

absl::string_view RecomputeName(Recompute recompute) {
  return kRecomputes[static_cast<size_t>(recompute)];
}
absl::string_view ContextMethodName(ContextMethod method) {
  return kContextMethods[static_cast<size_t>(method)];
}
absl::string_view GridScheduleName(GridSchedule schedule) {
  return kSchedules[static_cast<size_t>(schedule)];
}
absl::StatusOr<Recompute> ParseRecompute(absl::string_view text) {
  return ParseName<Recompute>("recompute", kRecomputes, text);
}
absl::StatusOr<ContextMethod> ParseContextMethod(absl::string_view text) {
  return ParseName<ContextMethod>("context method", kContextMethods, text);
}
absl::StatusOr<GridSchedule> ParseGridSchedule(absl::string_view text) {
  return ParseName<GridSchedule>("schedule", kSchedules, text);
}
absl::StatusOr<ActivationForm> ParseActivationForm(absl::string_view text) {
  return ParseName<ActivationForm>("activations", kForms, text);
}
absl::StatusOr<VectorForm> ParseVectorForm(absl::string_view text) {
  return ParseName<VectorForm>("vectors", kVectorForms, text);
}

absl::Status Validate(const Training& training) {
  const struct {
    absl::string_view name;
    double value;
    double least;
    double most;
  } figures[] = {{"batch", static_cast<double>(training.batch), 1, 1e9},
                 {"sequence", static_cast<double>(training.sequence), 1, 1e9},
                 {"microbatch", static_cast<double>(training.microbatch), 0, 1e9},
                 {"chunks", static_cast<double>(training.chunks), 1, 1024},
                 {"expert imbalance", training.expert_imbalance, 1, 1e3},
                 {"zero", static_cast<double>(training.zero), 0, 3},
                 {"cached layers", static_cast<double>(training.cached_layers), 0, 1e9},
                 {"pending scatters", static_cast<double>(training.pending_scatters), 1, 1e6},
                 {"element bytes", training.element_bytes, 0.125, 16},
                 {"data gradient bytes", training.data_gradient_bytes, 0.125, 16}};
  for (const auto& [name, value, least, most] : figures) {
    if (std::isfinite(value) && value >= least && value <= most) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": expected ", least, " to ", most, ", found ", value));
  }
  if ((training.schedule == GridSchedule::kInterleaved) != (training.chunks > 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "chunks: expected more than 1 with schedule interleaved_1f1b, and 1 with others, found ",
        training.chunks, " with ", GridScheduleName(training.schedule)));
  }
  if (training.vectors == VectorForm::kDiagonal &&
      training.activations == ActivationForm::kReplicated) {
    return absl::InvalidArgumentError(
        "vectors: expected replicated ones beside replicated activations, found diagonal ones");
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
