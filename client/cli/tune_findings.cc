#include "client/cli/tune_findings.h"

#include "client/cli/pipeline_run_report.h"
#include "common/base/format.h"
#include "common/base/table.h"

#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <absl/status/statusor.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

// As far apart as predictions of programs and rehearsals are now and then (docs/benchmarks).
constexpr double kOff = 0.1;

// The model counts what matrices move, and vectors by themselves.
bool IsModelled(absl::string_view transfer) {
  for (const absl::string_view other : {"norm", "loss", "vectors"}) {
    if (absl::StrContains(transfer, other)) return false;
  }
  return true;
}

std::set<std::string> AxesOf(const Layout& layout) {
  std::set<std::string> axes;
  if (layout.axes() == nullptr) return axes;
  for (const auto& dimension : layout.axes()->dimensions) {
    axes.insert(dimension.begin(), dimension.end());
  }
  return axes;
}

// Over which slots have summands, or over which a tensor is brought together.
std::optional<GridAxis> AxisOf(const LayerProgram& program,
                               const LayerProgram::Transfer& transfer) {
  if (program.from(transfer) != program.to(transfer)) return std::nullopt;
  std::string name;
  if (!transfer.partial.empty()) name = transfer.partial.front();
  const std::set<std::string> after = AxesOf(transfer.tensors.front().destination);
  for (const std::string& axis : AxesOf(transfer.tensors.front().source)) {
    if (name.empty() && !after.contains(axis)) name = axis;
  }
  const absl::StatusOr<GridAxis> axis = ParseGridAxis(name);
  return axis.ok() ? std::optional<GridAxis>(*axis) : std::nullopt;
}

double RatioOf(double measured, double modelled) { return modelled > 0 ? measured / modelled : 1; }

}  // namespace

bool TuneFindings::Times::is_off() const {
  return std::abs(RatioOf(measured, modelled) - 1) > kOff;
}

void TuneFindings::Add(const GridShape& shape, const LayerProgram& program,
                       const v1::PipelineMeasurement& measurement) {
  const auto ranks = static_cast<double>(program.ranks.size());
  for (const CollectiveUse& use : step_.Collectives(shape)) {
    if (use.axis == GridAxis::kPipeline || use.object == "vectors") continue;
    Times& times = of_axis_[use.axis];
    times.modelled += use.seconds * use.count;
    times.is_measured &= step_.RateOf(shape.grid, use.axis).source() == RateSource::kMeasured;
  }
  std::map<absl::string_view, double> seconds;
  for (const auto& transfer : measurement.transfers()) {
    seconds[transfer.name()] = transfer.transfer_seconds();
  }
  for (const LayerProgram::Transfer& transfer : program.transfers) {
    const std::optional<GridAxis> axis = AxisOf(program, transfer);
    if (!axis.has_value() || !IsModelled(transfer.name)) continue;
    of_axis_[*axis].measured +=
        static_cast<double>(transfer.messages.size()) * seconds[transfer.name] / ranks;
  }
  for (const LayerProgram::Op& op : program.ops) of_ops_.modelled += op.seconds / ranks;
  for (const auto& [rank, busy] : MeasuredBusy(measurement)) of_ops_.measured += busy / ranks;
}

std::string TuneFindings::Change(GridAxis axis) const {
  const Times& times = of_axis_[axis];
  if (!times.is_off()) return "nothing";
  return absl::StrCat(times.is_measured ? "its rate, which was measured by itself: measure it again"
                                        : "its rate: measure it",
                      " (crossmesh network measure --axes ", GridAxisName(axis), ")");
}

std::string TuneFindings::Text() const {
  if (of_ops_.measured == 0) return "";
  TextTable table({"OF A STEP", "COST MODEL>", "MEASURED>", "RATIO>", "WHAT TO CHANGE"});
  const auto add = [&table](absl::string_view of, const Times& times, std::string change) {
    table.AddRow({std::string(of), FormatSeconds(times.modelled), FormatSeconds(times.measured),
                  absl::StrFormat("%.2f", RatioOf(times.measured, times.modelled)),
                  std::move(change)});
  };
  for (const GridAxis axis : kGridAxes) {
    if (of_axis_[axis].modelled > 0) add(GridAxisName(axis), of_axis_[axis], Change(axis));
  }
  add("ops", of_ops_,
      of_ops_.is_off() ? "hosts are slow beside the device: one of fewer --flops, or --no-checksums"
                       : "nothing");
  return table.ToString();
}

nlohmann::json TuneFindings::Document() const {
  nlohmann::json document = nlohmann::json::array();
  if (of_ops_.measured == 0) return document;
  const auto add = [&document](absl::string_view of, const Times& times) -> nlohmann::json& {
    return document.emplace_back(nlohmann::json{{"of", std::string(of)},
                                                {"modelled_seconds", times.modelled},
                                                {"measured_seconds", times.measured}});
  };
  for (const GridAxis axis : kGridAxes) {
    const Times& times = of_axis_[axis];
    if (times.modelled > 0) add(GridAxisName(axis), times)["rates_measured"] = times.is_measured;
  }
  add("ops", of_ops_);
  return document;
}

}  // namespace crossmesh
