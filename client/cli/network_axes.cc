#include "client/cli/network_axes.h"

#include "client/cli/cli.h"
#include "client/cli/progress.h"
#include "client/client.h"
#include "client/outcome.h"
#include "common/base/clock.h"
#include "common/base/count_text.h"
#include "common/base/error_place.h"
#include "common/base/format.h"
#include "common/base/status_macros.h"
#include "common/base/table.h"
#include "common/mesh/mesh.h"
#include "common/wire/tensor_codec.h"
#include "planner/layers/layer_program_codec.h"
#include "planner/parallelism/measured_axes.h"
#include "planner/parallelism/programs/axis_trial.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// The first iteration opens connections and touches memory.
constexpr int64_t kAxisIterations = 2;

std::string PositionName(const AxisPosition& position) {
  return absl::StrCat("inner ", position.inner, ", own ", position.own);
}

absl::StatusOr<AxisPosition> PositionIn(const Mesh& mesh, const std::string& axis) {
  const std::optional<int> found = mesh.FindAxis(axis);
  if (!found.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("--axes: expected axes of mesh ",
                                                   AxesToString(mesh.axes()), ", found ", axis));
  }
  AxisPosition position{.own = mesh.axes()[*found].size};
  for (int later = *found + 1; later < mesh.rank(); ++later) {
    position.inner *= mesh.axes()[later].size;
  }
  if (position.own > 1) return position;
  return absl::InvalidArgumentError(
      absl::StrCat("--axes: expected axes of at least two devices, found ", axis, "=1"));
}

absl::StatusOr<std::vector<AxisPosition>> PositionsIn(const Mesh& mesh,
                                                      const std::vector<std::string>& axes) {
  if (mesh.slots() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("--mesh: expected at least two devices, found ", mesh.slots()));
  }
  if (axes.empty()) return PositionRates::PositionsOf(mesh.slots());
  std::vector<AxisPosition> positions;
  for (const std::string& axis : axes) {
    ASSIGN_OR_RETURN(positions.emplace_back(), PositionIn(mesh, axis));
  }
  std::ranges::sort(positions);
  positions.erase(std::ranges::unique(positions).begin(), positions.end());
  return positions;
}

absl::StatusOr<double> TransferSeconds(const v1::PipelineRun& run, absl::string_view transfer) {
  for (const v1::PipelineMeasurement::Transfer& measured : run.measurement().transfers()) {
    if (measured.name() == transfer) return measured.transfer_seconds();
  }
  return absl::InternalError(
      absl::StrCat("run ", run.id(), ": expected a time of transfer ", transfer, ", found none"));
}

// What is measured, on which network.
struct AxesRun {
  Client& client;
  const v1::Network& network;
  const Mesh& mesh;
  int64_t gather_bytes = 0;
};

// OutOfRange: that of FitPosition.
absl::StatusOr<MeasuredPosition> MeasurePosition(const AxesRun& on, AxisPosition position) {
  ASSIGN_OR_RETURN(const AxisTrial trial,
                   MakeAxisTrial(on.mesh.devices(), position, on.gather_bytes));
  v1::StartPipelineRequest request;
  *request.mutable_inline_layers() = ToProto(trial.program);
  *request.mutable_inline_layers()->mutable_topology() = on.network.topology();
  request.set_request_id(NewRequestId());
  request.set_iterations(kAxisIterations);
  request.set_rehearsal(true);
  request.set_stop_at_failure(true);
  ASSIGN_OR_RETURN(const v1::PipelineRun run,
                   on.client.StartPipeline(request, [](const v1::PipelineRun&) {}));
  RETURN_IF_ERROR(OutcomeOf(run));
  ASSIGN_OR_RETURN(const double small, TransferSeconds(run, kSmallGather));
  ASSIGN_OR_RETURN(const double large, TransferSeconds(run, kLargeGather));
  return FitPosition(trial, small, large);
}

// With what is known of the same devices already.
absl::StatusOr<v1::Network> StoreAxes(const AxesRun& on, std::vector<MeasuredPosition> positions) {
  ASSIGN_OR_RETURN(MeasuredAxes axes,
                   MeasuredAxes::Create(on.mesh.devices(), std::move(positions)));
  if (on.network.has_axes()) {
    ASSIGN_OR_RETURN(const MeasuredAxes known, FromProto(on.network.axes()));
    if (known.devices() == axes.devices()) {
      ASSIGN_OR_RETURN(axes, known.With(axes.positions()));
    }
  }
  v1::SetNetworkRequest request;
  *request.mutable_topology() = on.network.topology();
  request.set_revision(on.network.revision());
  *request.mutable_axes() = ToProto(axes);
  return on.client.SetNetwork(request);
}

}  // namespace

absl::Status MeasureAxes(Cli& cli, const NetworkAxesFlags& flags) {
  if (flags.mesh.empty()) {
    return absl::InvalidArgumentError("--axes: expected --mesh, whose axes they are, found none");
  }
  ASSIGN_OR_RETURN(const Mesh mesh, At("--mesh", ParseMesh(flags.mesh)));
  ASSIGN_OR_RETURN(const std::vector<AxisPosition> positions, PositionsIn(mesh, flags.axes));
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const v1::Network network, client.GetNetwork());
  const AxesRun on{client, network, mesh, flags.gather_bytes};
  const RealClock clock;
  Progress progress("measure", std::ssize(positions), Progress::FormFor(cli.json()), clock);
  progress.CountIn("positions");
  std::vector<MeasuredPosition> found;
  std::string warnings;
  for (size_t place = 0; place < positions.size(); ++place) {
    const std::string name = PositionName(positions[place]);
    progress.Update(static_cast<int64_t>(place), name);
    absl::StatusOr<MeasuredPosition> measured = MeasurePosition(on, positions[place]);
    if (absl::IsOutOfRange(measured.status())) {
      absl::StrAppend(&warnings, "WARNING: ", measured.status().message(),
                      "; it stays as it is described\n");
      continue;
    }
    RETURN_IF_ERROR(At(name, measured.status()));
    found.push_back(*measured);
  }
  progress.Finish(absl::StrCat("measured ", CountText(std::ssize(found), "position", "positions")));
  if (found.empty()) {
    return absl::OutOfRangeError(absl::StrCat("axes: expected rates, found none\n", warnings));
  }
  ASSIGN_OR_RETURN(const v1::Network stored, StoreAxes(on, std::move(found)));
  return cli.Answer(stored, absl::StrCat(warnings, AxesText(stored), "\nnetwork revision ",
                                         stored.revision(), "\n"));
}

std::string AxesText(const v1::Network& network) {
  if (!network.has_axes()) return "";
  const absl::StatusOr<MeasuredAxes> axes = FromProto(network.axes());
  const absl::StatusOr<Topology> topology = FromProto(network.topology());
  if (!axes.ok() || !topology.ok()) return "";
  const absl::StatusOr<PositionRates> described = RatesOfNetwork(axes->devices(), *topology);
  const absl::StatusOr<PositionRates> measured =
      RatesOfNetwork(axes->devices(), *topology, axes->positions());
  if (!described.ok() || !measured.ok()) return "";
  const int64_t devices = std::ssize(axes->devices());
  TextTable table({"INNER>", "OWN>", "GROUPS>", "RATE>", "A MESSAGE>", "SOURCE", "AS DESCRIBED>"});
  for (const AxisPosition& position : PositionRates::PositionsOf(devices)) {
    const AxisRate& rate = measured->At(position.inner, position.own);
    const auto entry = std::ranges::find(axes->positions(), position, &MeasuredPosition::position);
    table.AddRow(
        {absl::StrCat(position.inner), absl::StrCat(position.own),
         absl::StrCat(devices / position.own), FormatRate(rate.bytes_per_second()),
         entry == axes->positions().end() ? "-" : FormatSeconds(entry->seconds_per_message),
         std::string(RateSourceName(rate.source())),
         FormatRate(described->At(position.inner, position.own).bytes_per_second())});
  }
  return absl::StrCat("Axes over ", network.axes().devices(), ":\n", table.ToString());
}

}  // namespace crossmesh
