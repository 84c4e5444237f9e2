#include "planner/redistribute/planning/course_prediction.h"

#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "common/mesh/topology.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/network/simulator.h"
#include "planner/redistribute/planning/testing/course_requests.h"
#include "planner/redistribute/testing/random_redistribution.h"
#include "planner/reshard/plan_reshard.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::DoubleNear;

constexpr int64_t kRate = 1'000'000;  // bytes per second

// Hosts h0, h1, ... with one NIC each.
Topology HostsOfRates(const std::vector<int64_t>& out, const std::vector<int64_t>& in) {
  std::vector<Host> hosts;
  for (size_t i = 0; i < out.size(); ++i) {
    hosts.push_back({absl::StrCat("h", i), {{"n", out[i], in[i]}}});
  }
  return Topology::Create(hosts, {}).value();
}

// A matrix of so many bytes from one mesh to another, as a step.
Course<Plan>::Step Move(const std::string& from, const std::string& to, int64_t bytes,
                        const Topology& topology) {
  TensorTable::Spec spec;
  spec.sources.push_back({ParseMesh(from).value(), *ParseLayout("[x]")});
  spec.destinations.push_back({ParseMesh(to).value(), *ParseLayout("[x]")});
  spec.groups.push_back({.shape = Shape::Create({{bytes / 4}}).value(), .type = DataType::kF32});
  spec.group_of_tensor.push_back(0);
  const auto table =
      std::make_shared<const TensorTable>(TensorTable::Create(std::move(spec)).value());
  return {.move = std::make_shared<const Plan>(
              PlanReshard({.tensors = table, .topology = topology}).value())};
}

double SecondsOf(const std::vector<Course<Plan>::Step>& steps, int32_t instances,
                 const Topology& topology) {
  const std::vector<Course<Plan>> courses = {
      {.instances = instances, .buffers = 3, .steps = steps}};
  const TensorTable& table = steps.front().move->tensors();
  return PredictCourses(table, courses, HostNetworkOf(table, topology)).seconds;
}

TEST(CoursePrediction, StepsOverOnePortTakeTurns) {
  const Topology topology = HostsOfRates({kRate, kRate}, {kRate, kRate});
  const auto step = Move("x=1 on h0.0", "x=1 on h1.0", kRate, topology);
  EXPECT_THAT(SecondsOf({step, step}, 8, topology), DoubleNear(16, 1e-9));
}

TEST(CoursePrediction, StepsOverDifferentPortsOverlap) {
  const Topology topology = HostsOfRates({kRate, kRate}, {kRate, kRate});
  const auto there = Move("x=1 on h0.0", "x=1 on h1.0", kRate, topology);
  const auto back = Move("x=1 on h1.0", "x=1 on h0.0", kRate / 2, topology);
  EXPECT_THAT(SecondsOf({there, back}, 8, topology), DoubleNear(1.5 + 7 * 1, 1e-9));
}

TEST(CoursePrediction, CoursesRunOneAfterTheOther) {
  const Topology topology = HostsOfRates({kRate, kRate}, {kRate, kRate});
  const auto there = Move("x=1 on h0.0", "x=1 on h1.0", kRate, topology);
  const auto back = Move("x=1 on h1.0", "x=1 on h0.0", kRate, topology);
  const std::vector<Course<Plan>> courses = {{.instances = 2, .buffers = 2, .steps = {there}},
                                             {.instances = 3, .buffers = 3, .steps = {back}}};
  const TensorTable& table = there.move->tensors();
  const CoursePrediction found = PredictCourses(table, courses, HostNetworkOf(table, topology));
  EXPECT_THAT(found.seconds, DoubleNear(5, 1e-9));
  EXPECT_THAT(found.load.host_out, testing::ElementsAre(2 * kRate, 3 * kRate));
  EXPECT_EQ(found.load.network_bytes, 5 * kRate);
  EXPECT_EQ(found.load.depth, 1);
}

// The plainest run of a course: time goes from one event to the next, and every step of an instance
// that may run moves on, as fast as its ports allow, which it shares with the others.
class CourseRun {
 public:
  CourseRun(const Course<Plan>& course, const Topology& topology) : course_(course) {
    for (const Course<Plan>::Step& step : course.steps) {
      const SimulatedTimeline alone = Simulate(*step.move, topology).value();
      std::map<Port, double>& load = loads_.emplace_back();
      for (size_t port = 0; port < alone.ports.size(); ++port) {
        const NetworkPort& of = alone.ports[port];
        const Port name(of.name, of.kind);
        rates_[name] = of.bytes_per_second;
        if (alone.port_bytes[port] > 0) load[name] = alone.port_bytes[port];
      }
    }
    left_.assign(course.steps.size(), std::vector<double>(course.instances, 1));
  }

  double Seconds() {
    double seconds = 0;
    for (std::vector<At> running = Running(); !running.empty(); running = Running()) {
      const std::vector<double> speeds = SpeedsOf(running);
      double until = std::numeric_limits<double>::max();
      for (size_t i = 0; i < running.size(); ++i) {
        until = std::min(until, LeftOf(running[i]) / speeds[i]);
      }
      for (size_t i = 0; i < running.size(); ++i) {
        double& left = LeftOf(running[i]);
        left = left / speeds[i] <= until * (1 + 1e-9) ? 0 : left - speeds[i] * until;
      }
      seconds += until;
    }
    return seconds;
  }

  double MostOfAPort() const {
    double most = 0;
    for (const auto& [port, rate] : rates_) {
      double bytes = 0;
      for (const std::map<Port, double>& load : loads_) bytes += LoadOf(load, port);
      most = std::max(most, bytes * course_.instances / rate);
    }
    return most;
  }

 private:
  using Port = std::pair<std::string, PortPrice::Port>;  // its name and kind
  struct At {
    int32_t step = 0;
    int32_t instance = 0;
  };

  int32_t steps() const { return static_cast<int32_t>(loads_.size()); }
  double& LeftOf(At at) { return left_[at.step][at.instance]; }
  bool IsDone(At at) { return at.step < 0 || at.instance < 0 || LeftOf(at) == 0; }
  static double LoadOf(const std::map<Port, double>& load, const Port& port) {
    const auto found = load.find(port);
    return found == load.end() ? 0 : found->second;
  }

  // In order of instances, with the array free that it fills.
  bool MayRun(At at) {
    const At reader{.step = std::min(at.step + 1, steps() - 1),
                    .instance = at.instance - course_.buffers};
    return LeftOf(at) > 0 && IsDone({at.step - 1, at.instance}) && IsDone(reader);
  }

  std::vector<At> Running() {
    std::vector<At> running;
    for (int32_t instance = 0; instance < course_.instances; ++instance) {
      for (int32_t step = 0; step < steps(); ++step) {
        const At at{.step = step, .instance = instance};
        if (!MayRun(at)) continue;
        // Inside hosts bytes take no time.
        if (!loads_[step].empty()) {
          running.push_back(at);
        } else {
          LeftOf(at) = 0;
        }
      }
    }
    return running;
  }

  // Parts of a step per second: all rise together until a port is full, whose steps then keep what
  // they have.
  std::vector<double> SpeedsOf(const std::vector<At>& running) const {
    std::vector<double> speeds(running.size(), 0);
    std::vector<bool> fixed(running.size(), false);
    std::map<Port, double> free = rates_;
    while (std::ranges::count(fixed, false) > 0) {
      double rise = std::numeric_limits<double>::max();
      Port full;
      for (const auto& [port, rate] : free) {
        double load = 0;
        for (size_t i = 0; i < running.size(); ++i) {
          if (!fixed[i]) load += LoadOf(loads_[running[i].step], port);
        }
        if (load > 0 && rate / load < rise) {
          rise = rate / load;
          full = port;
        }
      }
      const std::vector<bool> before = fixed;
      for (size_t i = 0; i < running.size(); ++i) {
        if (before[i]) continue;
        const std::map<Port, double>& load = loads_[running[i].step];
        speeds[i] += rise;
        for (const auto& [port, bytes] : load) free[port] -= rise * bytes;
        fixed[i] = load.contains(full);
      }
    }
    return speeds;
  }

  const Course<Plan>& course_;
  std::vector<std::map<Port, double>> loads_;  // [step], bytes of one instance
  std::map<Port, double> rates_;
  std::vector<std::vector<double>> left_;  // [step][instance], parts
};

// Of redistributions by chance, on hosts of different rates, in as many instances as there may be.
CourseRequest RandomRequest(uint64_t seed) {
  std::mt19937_64 random(seed);
  const RedistributionRequest drawn =
      RandomRedistribution(seed, {.devices_max = 12, .partial = true, .uneven = false});
  CourseRequest made =
      RequestOf(drawn, {.devices_of_host = static_cast<int64_t>(1 + random() % 2), .tensors = 6});
  made.request.redistribution.no_relays = true;
  made.sizes = {.array_bytes = 64, .row_elements = 1};
  std::vector<int64_t> out, in;
  for (int host = 0; host < 12; ++host) {
    out.push_back(kRate * static_cast<int64_t>(1 + random() % 3));
    in.push_back(kRate * static_cast<int64_t>(1 + random() % 3));
  }
  made.request.topology = HostsOfRates(out, in);
  return made;
}

TEST(CoursePrediction, RandomCoursesTakeAsLongAsTheyRun) {
  const uint64_t seed = FromEnvironment("CROSSMESH_SEED", 1);
  const int64_t cases = RandomCases(300);
  int64_t overlapping = 0;
  for (int64_t i = 0; i < cases && !HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
    const CourseRequest request = RandomRequest(seed + i);
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(request));
    const HostNetwork network = HostNetworkOf(plan.tensors(), request.request.topology);
    for (const Course<Plan>& course : plan.courses()) {
      const double predicted =
          PredictCourses(plan.tensors(), std::span(&course, 1), network).seconds;
      CourseRun run(course, request.request.topology);
      const double seconds = run.Seconds();
      EXPECT_THAT(predicted, DoubleNear(seconds, 0.15 * seconds));
      EXPECT_GE(predicted, run.MostOfAPort() * (1 - 1e-9));
      if (seconds > 0 && course.instances > 1 && course.steps.size() > 1) ++overlapping;
    }
  }
  if (cases >= 300) {
    EXPECT_GT(overlapping, 20);
  }
}

}  // namespace
}  // namespace crossmesh
