#include "client/cli/tune_findings.h"

#include "client/cli/program_of_grid.h"
#include "planner/parallelism/grid_ranking.h"
#include "planner/parallelism/network_rates.h"

#include <string>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A measurement in which ops take `ops` times their time, and messages over z `z` times what the
// cost model says of all collectives over it together, those over other axes once.
class TuneFindingsTest : public ::testing::Test {
 protected:
  static StepModel Step() {
    Transformer model = PlainTransformer("small", 4, 256, 8);
    model.vocabulary = 512;
    return *StepModel::Create(model, {.batch = 32, .sequence = 64}, *FindDevicePreset("a100"),
                              *RatesOfNetwork(Devices(), Topology()));
  }
  static std::vector<DeviceId> Devices() { return *ParseDevices("a.0,b.0,c.0,d.0"); }

  static void Add(const StepModel& step, const char* grid, double z, double ops,
                  TuneFindings& findings) {
    const GridShape shape = PriceGrid(step, *ParseGrid(grid))->shape;
    const WindowedGrid planned = *PlanProgramOfGrid(step, shape, {.devices = Devices()},
                                                    {.overlaps = step.training().overlaps});
    const LayerProgram& program = planned.program();
    v1::PipelineMeasurement measurement;
    const auto measure = [&](const char* end, double seconds) {
      std::vector<const LayerProgram::Transfer*> found;
      double messages = 0;
      for (const LayerProgram::Transfer& transfer : program.transfers) {
        if (!absl::EndsWith(transfer.name, end) || absl::StrContains(transfer.name, "norm") ||
            absl::StrContains(transfer.name, "loss")) {
          continue;
        }
        found.push_back(&transfer);
        messages += static_cast<double>(transfer.messages.size());
      }
      for (const LayerProgram::Transfer* const transfer : found) {
        auto& of = *measurement.add_transfers();
        of.set_name(transfer->name);
        of.set_transfer_seconds(seconds / messages);
      }
    };
    double gathers = 0, scatters = 0, sums = 0, input_gradients = 0;
    for (const CollectiveUse& use : step.Collectives(shape)) {
      if (use.object == "vectors") continue;
      double& all = use.axis == GridAxis::kZ
                        ? (use.op == CollectiveOp::kAllGather ? gathers : scatters)
                        : (use.what == "output" ? sums : input_gradients);
      all += use.seconds * use.count;
    }
    measure("gather", z * gathers);
    measure("scatter", z * scatters);
    measure(".sum", sums);
    measure(".gradient_sum", input_gradients);
    auto& times = *measurement.add_ranks()->mutable_ops();
    double now = 1;
    for (const LayerProgram::Op& op : program.ops) {
      times.add_begin(now);
      times.add_end(now += ops * op.seconds);
    }
    findings.Add(shape, program, measurement);
  }
};

TEST_F(TuneFindingsTest, WhatTookLongerThanTheModelSaysIsNamed) {
  const StepModel step = Step();
  TuneFindings findings(step);
  EXPECT_EQ(findings.Text(), "");
  Add(step, "r=2,z=2", 3, 1, findings);
  Add(step, "z=4", 3, 1, findings);
  EXPECT_THAT(
      findings.Text(),
      AllOf(HasSubstr("3.00  its rate: measure it (crossmesh network measure --axes z)"),
            HasSubstr("1.00  nothing"), Not(HasSubstr("--axes r")), Not(HasSubstr("--flops"))));
  const nlohmann::json document = findings.Document();
  ASSERT_EQ(document.size(), 3);
  EXPECT_EQ(document[1]["of"], "z");
  EXPECT_EQ(document[1]["rates_measured"], false);
  EXPECT_NEAR(
      document[1]["measured_seconds"].get<double>() / document[1]["modelled_seconds"].get<double>(),
      3, 1e-6);
}

TEST_F(TuneFindingsTest, SlowHostsAreNotTheNetworks) {
  const StepModel step = Step();
  TuneFindings findings(step);
  Add(step, "r=2,z=2", 1, 1.5, findings);
  EXPECT_THAT(findings.Text(),
              AllOf(HasSubstr("1.50  hosts are slow beside the device"), Not(HasSubstr("--axes"))));
}

}  // namespace
}  // namespace crossmesh
