#include "planner/redistribute/derivation.h"

#include "planner/redistribute/overlap.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

// Nothing without a time model.
std::string SecondsText(double seconds) {
  return seconds > 0 ? absl::StrFormat(", %.4g us", seconds * 1e6) : "";
}

}  // namespace

absl::string_view DerivationOriginName(DerivationOrigin origin) {
  switch (origin) {
    case DerivationOrigin::kSearch:
      return "search";
    case DerivationOrigin::kBudget:
      return "budget";
    case DerivationOrigin::kUneven:
      return "uneven";
    case DerivationOrigin::kBaseline:
      return "baseline";
  }
  return "unknown";
}

Derivation::Derivation(std::shared_ptr<const TypeSpace> space,
                       std::vector<RedistributionStep> steps, DerivationOrigin origin)
    : space_(std::move(space)), steps_(std::move(steps)), origin_(origin) {
  const NeediestDevice neediest =
      FindNeediestDevice(*space_, space_->source(), space_->destination());
  bound_bytes_ = neediest.missing_elements * space_->item_bytes();
}

Derivation Derivation::WithStaging(StepStaging staging) const {
  Derivation other = *this;
  for (RedistributionStep& step : other.steps_) {
    if (step.kind != StepKind::kSlice) step.live_bytes += staging.bytes;
  }
  return other;
}

int64_t Derivation::bytes() const {
  int64_t bytes = 0;
  for (const RedistributionStep& step : steps_) bytes += step.bytes_received;
  return bytes;
}

int64_t Derivation::peak_live_bytes() const {
  int64_t peak = space_->LocalBytes(space_->source());
  for (const RedistributionStep& step : steps_) peak = std::max(peak, step.live_bytes);
  return peak;
}

int64_t Derivation::peak_local_bytes() const {
  int64_t peak = space_->LocalBytes(space_->source());
  for (const RedistributionStep& step : steps_) {
    peak = std::max(peak, space_->LocalBytes(step.after));
  }
  return peak;
}

double Derivation::seconds() const {
  double seconds = 0;
  for (const RedistributionStep& step : steps_) seconds += step.seconds;
  return seconds;
}

int Derivation::communicating_steps() const {
  return static_cast<int>(std::ranges::count_if(
      steps_, [](const RedistributionStep& step) { return step.bytes_received > 0; }));
}

std::string Derivation::Text(std::optional<int64_t> live_bytes_max) const {
  std::string text;
  for (const RedistributionStep& step : steps_) {
    absl::StrAppend(&text, StepKindName(step.kind), " ", space_->AtomsText(step.atoms), ": ",
                    space_->Text(step.before), " -> ", space_->Text(step.after), "; groups of ",
                    step.group, ", ", step.bytes_received, " bytes received, ", step.live_bytes,
                    " live", SecondsText(step.seconds), step.is_nccl_collective ? " by NCCL" : "",
                    "\n");
  }
  absl::StrAppend(&text, bytes(), " bytes");
  if (bound_bytes_ > 0) {
    absl::StrAppendFormat(&text, ", %.3f of the bound of %d",
                          static_cast<double>(bytes()) / static_cast<double>(bound_bytes_),
                          bound_bytes_);
  }
  absl::StrAppend(&text, "; peak of ", peak_live_bytes());
  if (live_bytes_max.has_value()) absl::StrAppend(&text, " of ", *live_bytes_max);
  absl::StrAppend(&text, SecondsText(seconds()), "; by ", DerivationOriginName(origin_), "\n");
  return text;
}

}  // namespace crossmesh
