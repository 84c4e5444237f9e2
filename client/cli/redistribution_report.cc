#include "client/cli/redistribution_report.h"

#include "client/cli/report_text.h"
#include "common/base/format.h"
#include "common/base/table.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

// "1.25", or "-" beside nothing.
std::string RatioText(double found, double beside) {
  return beside > 0 ? absl::StrFormat("%.2f", found / beside) : "-";
}

std::string StepsTable(const Derivation& derivation) {
  const TypeSpace& space = derivation.space();
  TextTable table({"STEP", "AXES", "GROUP>", "RECEIVED>", "LIVE>", "TIME>", "TYPE"});
  table.AddRow({"source", "", "", "", "", "", space.Text(space.source())});
  for (const RedistributionStep& step : derivation.steps()) {
    const std::string atoms = space.AtomsText(step.atoms);
    table.AddRow({std::string(StepKindName(step.kind)), atoms.empty() ? "all" : atoms,
                  absl::StrCat(step.group), Bytes(step.bytes_received), Bytes(step.live_bytes),
                  FormatSeconds(step.seconds), space.Text(step.after)});
  }
  return table.ToString();
}

std::string BaselinesTable(const Derivation& ours, std::span<const NamedDerivation> baselines) {
  TextTable table(
      {"BESIDE", "STEPS>", "RECEIVED>", "RATIO>", "LIVE>", "RATIO>", "TIME>", "RATIO>"});
  std::string refusals;
  bool has_rows = false;
  for (const auto& [name, derivation, refusal] : baselines) {
    if (!derivation.has_value()) {
      absl::StrAppend(&refusals, name, " has no answer: ", refusal, "\n");
      continue;
    }
    has_rows = true;
    const auto bytes = static_cast<double>(derivation->bytes());
    const auto live = static_cast<double>(derivation->peak_live_bytes());
    table.AddRow(
        {name, absl::StrCat(derivation->steps().size()), Bytes(derivation->bytes()),
         RatioText(bytes, static_cast<double>(ours.bytes())), Bytes(derivation->peak_live_bytes()),
         RatioText(live, static_cast<double>(ours.peak_live_bytes())),
         FormatSeconds(derivation->seconds()), RatioText(derivation->seconds(), ours.seconds())});
  }
  return absl::StrCat(has_rows ? table.ToString() : "", refusals);
}

std::string ReceivedText(const Derivation& derivation) {
  if (derivation.bytes() == 0) return "nothing: every device has what it is to have";
  return absl::StrCat(Bytes(derivation.bytes()), " by the busiest device, ",
                      RatioText(static_cast<double>(derivation.bytes()),
                                static_cast<double>(derivation.bound_bytes())),
                      " x the least of any plan (", Bytes(derivation.bound_bytes()), ")");
}

std::string OriginText(const Derivation& derivation) {
  switch (derivation.origin()) {
    case DerivationOrigin::kSearch:
      return "the best of all sequences that the search considers";
    case DerivationOrigin::kBudget:
      return "the best seen before the search's budget ran out";
    case DerivationOrigin::kUneven:
      return "a relay: a dimension that does not divide changes";
    case DerivationOrigin::kBaseline:
      return "a method of the literature";
  }
  return "";
}

nlohmann::json Document(const Derivation& derivation) {
  const TypeSpace& space = derivation.space();
  nlohmann::json steps = nlohmann::json::array();
  for (const RedistributionStep& step : derivation.steps()) {
    steps.push_back({{"kind", std::string(StepKindName(step.kind))},
                     {"axes", space.AtomsText(step.atoms)},
                     {"group", step.group},
                     {"received_bytes", step.bytes_received},
                     {"live_bytes", step.live_bytes},
                     {"seconds", step.seconds},
                     {"type", space.Text(step.after)}});
  }
  return {{"bytes", derivation.bytes()},
          {"peak_live_bytes", derivation.peak_live_bytes()},
          {"seconds", derivation.seconds()},
          {"steps", std::move(steps)}};
}

}  // namespace

std::string RedistributionText(const Derivation& derivation, std::optional<int64_t> cap,
                               std::span<const NamedDerivation> baselines) {
  std::string text =
      absl::StrCat(StepsTable(derivation), "\n", ReportLine("received", ReceivedText(derivation)),
                   ReportLine("live", Bytes(derivation.peak_live_bytes()), " on the fullest device",
                              cap.has_value() ? absl::StrCat(", of ", Bytes(*cap)) : ""),
                   ReportLine("predicted", FormatSeconds(derivation.seconds())),
                   ReportLine("found as", OriginText(derivation)));
  if (!baselines.empty()) absl::StrAppend(&text, "\n", BaselinesTable(derivation, baselines));
  return text;
}

nlohmann::json RedistributionDocument(const Derivation& derivation, std::optional<int64_t> cap,
                                      std::span<const NamedDerivation> baselines) {
  const TypeSpace& space = derivation.space();
  nlohmann::json document = Document(derivation);
  document["source"] = space.Text(space.source());
  document["destination"] = space.Text(space.destination());
  document["bound_bytes"] = derivation.bound_bytes();
  document["origin"] = std::string(DerivationOriginName(derivation.origin()));
  if (cap.has_value()) document["cap_bytes"] = *cap;
  for (const auto& [name, baseline, refusal] : baselines) {
    document["baselines"][name] =
        baseline.has_value() ? Document(*baseline) : nlohmann::json{{"refusal", refusal}};
  }
  return document;
}

namespace {

// Elements of a device's local array.
int64_t ElementsOf(const TypeSpace& space, const LocalType& type, int64_t device) {
  int64_t elements = 1;
  for (int dimension = 0; dimension < space.shape().rank(); ++dimension) {
    int64_t length = 0;
    const int64_t part = space.PartOf(type.dimensions[dimension], device);
    for (const Interval& indices : space.IndicesOf(type, dimension, part)) {
      length += indices.length();
    }
    elements *= length;
  }
  return elements;
}

// What is live on each device in each step: devices alike together, the fullest first.
nlohmann::json MemoryDocument(const Derivation& derivation) {
  const TypeSpace& space = derivation.space();
  std::map<std::vector<int64_t>, int64_t> devices_of;  // [step]: bytes
  std::vector<int64_t> staging;
  for (const RedistributionStep& step : derivation.steps()) {
    staging.push_back(step.live_bytes - space.LocalBytes(step.before) -
                      space.LocalBytes(step.after));
  }
  for (int64_t device = 0; device < space.devices(); ++device) {
    std::vector<int64_t> live;
    for (size_t k = 0; k < derivation.steps().size(); ++k) {
      const RedistributionStep& step = derivation.steps()[k];
      const int64_t elements =
          ElementsOf(space, step.before, device) + ElementsOf(space, step.after, device);
      live.push_back(elements * space.item_bytes() + std::max<int64_t>(0, staging[k]));
    }
    ++devices_of[live];
  }
  nlohmann::json document = nlohmann::json::array();
  for (auto of = devices_of.rbegin(); of != devices_of.rend(); ++of) {
    document.push_back({{"devices", of->second}, {"live_bytes", of->first}});
  }
  return document;
}

}  // namespace

std::string RedistributionPicture(const Derivation& derivation, std::optional<int64_t> cap,
                                  std::span<const NamedDerivation> baselines) {
  nlohmann::json picture = RedistributionDocument(derivation, cap, baselines);
  picture["picture"] = "redistribution";
  picture["memory"] = MemoryDocument(derivation);
  return picture.dump();
}

}  // namespace crossmesh
