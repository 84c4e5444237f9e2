#include "planner/parallelism/programs/scatter_window.h"

#include "common/testing/status_matchers.h"
#include "planner/layers/planned_layers.h"
#include "planner/parallelism/programs/grid_program.h"
#include "planner/pipeline/schedules/window_order.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

constexpr double kAnyBytes = std::numeric_limits<double>::infinity();
constexpr int64_t kLayers = 4;

struct HostRates {
  int64_t nic = 0;
  int64_t inside = 0;
};

// Hosts with a NIC each, whose devices share a memory.
Topology HostsOf(const HostRates& rates) {
  std::vector<Host> hosts;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
    hosts.push_back({.name = name,
                     .nics = {{.name = "eth0",
                               .out_bytes_per_second = rates.nic,
                               .in_bytes_per_second = rates.nic}},
                     .local_bytes_per_second = rates.inside});
  }
  return *Topology::Create(std::move(hosts), {});
}

constexpr char kEachOnAHost[] = "a.0,b.0,c.0,d.0,e.0,f.0,g.0,h.0";
constexpr char kPairsOnHosts[] = "a.0-1,b.0-1,c.0-1,d.0-1";

// A step on eight devices, whose ops take what an A100 takes.
GridProgramRequest WindowRequest(const std::string& grid, int32_t microbatches, int64_t sequence,
                                 const char* devices = kEachOnAHost) {
  GridProgramRequest request{
      .model = PlainTransformer("windowed", kLayers, 512, 8),
      .training = {.batch = 8 * int64_t{microbatches}, .sequence = sequence, .keep_gathered = true},
      .stages = *StagesOfGrid(*ParseGrid(grid), *ParseDevices(devices), {.layers = kLayers}),
      .microbatches = microbatches,
      .device = *FindDevicePreset("a100")};
  request.model.vocabulary = 1024;
  const auto stages = static_cast<int32_t>(request.stages.size());
  if (stages > 1) request.schedule = *MakeOneForwardOneBackward(stages, microbatches);
  return request;
}

// What a step takes with 1, 2, 3, ... pending scatters, one after the other.
std::vector<double> SecondsOfAll(GridProgramRequest request, const Topology& topology,
                                 int64_t most) {
  std::vector<double> seconds;
  std::shared_ptr<const PlannedLayers> first;
  for (int64_t window = 1; window <= most; ++window) {
    request.training.pending_scatters = window;
    const LayerProgram program = *MakeGridProgram(request);
    const auto planned =
        window == 1 ? *PlanLayers(program, topology) : *PlanLayersAs(*first, program);
    if (window == 1) first = planned;
    seconds.push_back(planned->run.seconds);
  }
  return seconds;
}

// The plainest way to the same: all numbers are tried.
TEST(ScatterWindowTest, NoFewerScattersDoAsWell) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  for (int attempt = 0; attempt < 12; ++attempt) {
    const char* const grids[] = {"z=8", "r=2,z=4", "c=2,r=2,z=2", "z=4,data=2", "z=4,pipeline=2"};
    const std::string grid = grids[random() % 5];
    const auto microbatches = static_cast<int32_t>(1 + random() % 3);
    const auto sequence = int64_t{64} << random() % 6;
    const Topology topology = HostsOf({.nic = int64_t{1'000'000'000} << random() % 5,
                                       .inside = int64_t{1'000'000'000} << random() % 5});
    GridProgramRequest request = WindowRequest(grid, microbatches, sequence,
                                               random() % 2 == 0 ? kEachOnAHost : kPairsOnHosts);
    request.training.overlaps.backward_gathers = random() % 2 == 0;
    request.training.cached_layers = random() % 2 == 0 ? 0 : kLayers;
    ASSERT_OK_AND_ASSIGN(const WindowedGrid found,
                         PlanWithScatterWindow(request, topology, kAnyBytes));
    const int64_t layers = kLayers / std::ssize(request.stages);
    const int64_t most = layers * microbatches;
    const std::vector<double> seconds = SecondsOfAll(request, topology, most);
    int64_t fewest = 1;
    while (seconds[fewest - 1] > seconds.back() * (1 + kSameStep)) ++fewest;
    SCOPED_TRACE(absl::StrCat(grid, ", ", microbatches, " microbatches of ", sequence));
    EXPECT_EQ(found.pending_scatters, fewest) << testing::PrintToString(seconds);
    EXPECT_EQ(found.pending_scatters_max, most);
    EXPECT_EQ(found.seconds_of_max, seconds.back());
    EXPECT_EQ(found.planned->run.seconds, seconds[fewest - 1]);
  }
}

// The backward pass scatters more than the network carries meanwhile, and the next forward pass
// leaves it free where weights stay gathered. Where they do not, it is busy all the time, and no
// number helps.
TEST(ScatterWindowTest, MoreMayBePendingWhereThereIsTimeForThemLater) {
  GridProgramRequest request = WindowRequest("z=8", 2, 1024);
  const Topology topology = HostsOf({.nic = 8'000'000'000});
  ASSERT_OK_AND_ASSIGN(const WindowedGrid busy,
                       PlanWithScatterWindow(request, topology, kAnyBytes));
  EXPECT_EQ(busy.pending_scatters, 1);
  request.training.cached_layers = kLayers;
  ASSERT_OK_AND_ASSIGN(const WindowedGrid free,
                       PlanWithScatterWindow(request, topology, kAnyBytes));
  EXPECT_EQ(free.pending_scatters, 3);
  EXPECT_EQ(free.pending_scatters_max, 2 * kLayers);
}

// The planned program is the one that MakeGridProgram makes with that number.
TEST(ScatterWindowTest, TheProgramHasAsManyBuffersAsAreChosen) {
  GridProgramRequest request = WindowRequest("z=8", 2, 512);
  const Topology topology = HostsOf({.nic = 4'000'000'000});
  ASSERT_OK_AND_ASSIGN(const WindowedGrid found,
                       PlanWithScatterWindow(request, topology, kAnyBytes));
  request.training.pending_scatters = found.pending_scatters;
  ASSERT_OK_AND_ASSIGN(const auto planned, PlanLayers(*MakeGridProgram(request), topology));
  EXPECT_EQ(found.planned->id, planned->id);
  // What was asked for counts for nothing.
  request.training.pending_scatters = 7;
  ASSERT_OK_AND_ASSIGN(const WindowedGrid again,
                       PlanWithScatterWindow(request, topology, kAnyBytes));
  EXPECT_EQ(again.planned->id, found.planned->id);
}

// So many as there is room for on the stage that has most: the last one, which has the logits.
TEST(ScatterWindowTest, MemoryBoundsHowManyMayBePending) {
  constexpr int64_t kMicrobatches = 2;
  for (const char* text : {"r=2,z=4", "z=4,pipeline=2"}) {
    const Grid grid = *ParseGrid(text);
    const GridProgramRequest request = WindowRequest(text, kMicrobatches, 64);
    const int64_t all = kLayers / grid.pipeline() * kMicrobatches;
    const auto bytes_of = [&](int64_t window) {
      const int64_t logits = std::min(window, kMicrobatches) * request.model.vocabulary;
      const int64_t blocks = window * 12 * request.model.hidden;
      const int64_t whole = (blocks + logits) * request.model.hidden / (grid.c() * grid.r());
      return 2 * static_cast<double>(whole + whole / grid.z());
    };
    for (const int64_t window : {int64_t{1}, int64_t{3}, all}) {
      for (const int beside : {-1, 0, 1}) {
        ASSERT_OK_AND_ASSIGN(const WindowedGrid found,
                             PlanWithScatterWindow(request, HostsOf({.nic = 1'000'000'000}),
                                                   bytes_of(window) + beside));
        EXPECT_EQ(found.pending_scatters_max,
                  std::max(int64_t{1}, beside < 0 ? window - 1 : window))
            << text << " " << window << " " << beside;
        EXPECT_LE(found.pending_scatters, found.pending_scatters_max);
      }
    }
  }
}

TEST(ScatterWindowTest, ScattersThatAreNotDeferredAreOne) {
  GridProgramRequest request = WindowRequest("z=8", 2, 64);
  request.training.overlaps.weight_gradients = false;
  ASSERT_OK_AND_ASSIGN(const WindowedGrid at_once,
                       PlanWithScatterWindow(request, HostsOf({.nic = 1'000'000'000}), kAnyBytes));
  EXPECT_EQ(at_once.pending_scatters, 1);
  EXPECT_EQ(at_once.pending_scatters_max, 1);
  // Nothing is scattered without z.
  ASSERT_OK_AND_ASSIGN(const WindowedGrid none,
                       PlanWithScatterWindow(WindowRequest("r=8", 2, 64),
                                             HostsOf({.nic = 1'000'000'000}), kAnyBytes));
  EXPECT_EQ(none.pending_scatters_max, 1);
}

TEST(ScatterWindowTest, AsManyAsAreGivenNeedNotFitOrHelp) {
  GridProgramRequest request = WindowRequest("z=8", 2, 64);
  request.training.pending_scatters = 5;
  ASSERT_OK_AND_ASSIGN(const WindowedGrid given,
                       PlanWithGivenScatters(request, HostsOf({.nic = 1'000'000'000})));
  EXPECT_EQ(given.pending_scatters, 5);
  for (const LayerProgram::Transfer& transfer : given.program().transfers) {
    if (transfer.name == "qkv.scatter") EXPECT_EQ(transfer.buffers, 5);
  }
  EXPECT_EQ(given.seconds_of_max, given.planned->run.seconds);
}

TEST(ScatterWindowTest, WhatCannotBeAProgramIsRefused) {
  GridProgramRequest request = WindowRequest("z=8", 2, 64);
  request.training.zero = 1;
  EXPECT_THAT(PlanWithScatterWindow(request, HostsOf({.nic = 1'000'000'000}), kAnyBytes).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected no ZeRO")));
}

}  // namespace
}  // namespace crossmesh
