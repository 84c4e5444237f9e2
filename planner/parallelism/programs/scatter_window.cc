#include "planner/parallelism/programs/scatter_window.h"

#include "common/base/status_macros.h"
#include "common/plan/tensor_table.h"
#include "planner/layers/planned_layers.h"
#include "planner/parallelism/programs/grid_program.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <absl/strings/match.h>

namespace crossmesh {
namespace {

// The scatters of a matrix.
struct MatrixScatters {
  RankIndex rank = 0;
  int64_t messages = 0;
  double bytes = 0;  // of one, on the device on which it takes most
};

std::vector<MatrixScatters> ScattersOf(const PlannedLayers& planned) {
  std::vector<MatrixScatters> scatters;
  for (size_t t = 0; t < planned.transfers.size(); ++t) {
    const LayerProgram::Transfer& transfer = planned.program.transfers[t];
    const bool is_of_matrix = !absl::StrContains(transfer.name, "vectors_of_");
    if (!is_of_matrix || !absl::EndsWith(transfer.name, ".scatter")) continue;
    const TensorTable& tensors = planned.transfers[t].plan->tensors();
    int64_t most = 0;
    for (DeviceRank device = 0; device < std::ssize(tensors.devices()); ++device) {
      most = std::max(most, tensors.BytesOf(Side::kSource, device) +
                                tensors.BytesOf(Side::kDestination, device));
    }
    scatters.push_back({.rank = planned.program.from(transfer),
                        .messages = std::ssize(transfer.messages),
                        .bytes = static_cast<double>(most)});
  }
  return scatters;
}

class WindowSearch {
 public:
  WindowSearch(GridProgramRequest request, const Topology& topology)
      : request_(std::move(request)), topology_(topology) {}

  absl::StatusOr<WindowedGrid> Run(double scatter_bytes_max) {
    RETURN_IF_ERROR(Plan(1).status());
    const int64_t most = Most(scatter_bytes_max);
    ASSIGN_OR_RETURN(std::shared_ptr<const PlannedLayers> largest, Plan(most));
    WindowedGrid found{
        .planned = std::move(largest), .pending_scatters = most, .pending_scatters_max = most};
    found.seconds_of_max = found.planned->run.seconds;
    int64_t too_few = 0;
    for (int64_t window = 1; window < found.pending_scatters; window *= 2) {
      RETURN_IF_ERROR(Try(window, found));
      if (found.pending_scatters != window) too_few = window;
    }
    while (found.pending_scatters - too_few > 1) {
      const int64_t window = too_few + (found.pending_scatters - too_few) / 2;
      RETURN_IF_ERROR(Try(window, found));
      if (found.pending_scatters != window) too_few = window;
    }
    return found;
  }

 private:
  absl::StatusOr<std::shared_ptr<const PlannedLayers>> Plan(int64_t window) {
    request_.training.pending_scatters = window;
    ASSIGN_OR_RETURN(LayerProgram program, MakeGridProgram(request_));
    if (first_ != nullptr) return PlanLayersAs(*first_, std::move(program));
    ASSIGN_OR_RETURN(first_, PlanLayers(std::move(program), topology_));
    return first_;
  }

  // Takes a smaller number where a step takes no longer with it.
  absl::Status Try(int64_t window, WindowedGrid& found) {
    ASSIGN_OR_RETURN(std::shared_ptr<const PlannedLayers> planned, Plan(window));
    if (planned->run.seconds > found.seconds_of_max * (1 + kSameStep)) return absl::OkStatus();
    found.planned = std::move(planned);
    found.pending_scatters = window;
    return absl::OkStatus();
  }

  // Of those that there are, so many as have memory on all ranks.
  int64_t Most(double scatter_bytes_max) const {
    if (!request_.training.overlaps.weight_gradients) return 1;
    const std::vector<MatrixScatters> scatters = ScattersOf(*first_);
    int64_t most = 1;
    for (const MatrixScatters& of : scatters) most = std::max(most, of.messages);
    const auto fits = [&](int64_t window) {
      std::vector<double> bytes(first_->program.ranks.size());
      for (const MatrixScatters& of : scatters) {
        bytes[of.rank] += static_cast<double>(std::min(window, of.messages)) * of.bytes;
      }
      return *std::ranges::max_element(bytes) <= scatter_bytes_max;
    };
    int64_t fitting = 1;
    while (fitting < most) {
      const int64_t window = fitting + (most - fitting + 1) / 2;
      if (fits(window)) {
        fitting = window;
      } else {
        most = window - 1;
      }
    }
    return fitting;
  }

  GridProgramRequest request_;
  const Topology& topology_;
  std::shared_ptr<const PlannedLayers> first_;
};

}  // namespace

const LayerProgram& WindowedGrid::program() const { return planned->program; }

absl::StatusOr<WindowedGrid> PlanWithGivenScatters(const GridProgramRequest& request,
                                                   const Topology& topology) {
  WindowedGrid given{.pending_scatters = request.training.pending_scatters,
                     .pending_scatters_max = request.training.pending_scatters};
  ASSIGN_OR_RETURN(LayerProgram program, MakeGridProgram(request));
  ASSIGN_OR_RETURN(given.planned, PlanLayers(std::move(program), topology));
  given.seconds_of_max = given.planned->run.seconds;
  return given;
}

absl::StatusOr<WindowedGrid> PlanWithScatterWindow(GridProgramRequest request,
                                                   const Topology& topology,
                                                   double scatter_bytes_max) {
  return WindowSearch(std::move(request), topology).Run(scatter_bytes_max);
}

}  // namespace crossmesh
