#pragma once

#include "planner/redistribute/derivation.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace crossmesh {

// A derivation under the name of what found it.
struct NamedDerivation {
  std::string name;
  std::optional<Derivation> derivation;  // nothing: it has no answer
  std::string refusal;                   // why
};

// The typed form of a derivation: a row for each step with the type after it; then bytes beside the
// bound, peak beside the cap, time; then the same of every baseline, as ratios.
std::string RedistributionText(const Derivation& derivation, std::optional<int64_t> cap,
                               std::span<const NamedDerivation> baselines);

// The same as an object, with the steps of the baselines as well.
nlohmann::json RedistributionDocument(const Derivation& derivation, std::optional<int64_t> cap,
                                      std::span<const NamedDerivation> baselines);

// The same as DrawPicture takes it, with what is live on all devices, step by step.
std::string RedistributionPicture(const Derivation& derivation, std::optional<int64_t> cap,
                                  std::span<const NamedDerivation> baselines);

}  // namespace crossmesh
