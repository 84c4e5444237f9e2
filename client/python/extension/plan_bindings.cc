#include "client/planning/local_plan.h"
#include "client/planning/plan_picture.h"
#include "client/python/extension/bindings.h"
#include "client/python/extension/json_text.h"
#include "common/base/error_place.h"
#include "common/mesh/manifest.h"
#include "common/mesh/mesh.h"
#include "common/mesh/topology_file.h"
#include "common/plan/plan.h"
#include "common/python/interruptible.h"
#include "common/python/raised_status.h"
#include "common/reshard/reshard_inputs.h"
#include "common/wire/plan_codec.h"
#include "planner/network/simulator.h"
#include "planner/reshard/strategy.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace crossmesh {
namespace nb = nanobind;
namespace {

// A plan with the run that a simulation has found.
struct SimulatedRun {
  std::shared_ptr<const LocalPlan> made;
  SimulatedTimeline timeline;
};

ReshardInputs::Side SideOf(const Mesh& mesh, const TextRules& rules) {
  return {.mesh = std::make_shared<const Mesh>(mesh), .rules = rules.rules};
}

BindingMode BindingOf(const std::string& name) {
  if (name == "shadow") return BindingMode::kShadow;
  if (name == "in_place") return BindingMode::kInPlace;
  RaiseStatus(absl::InvalidArgumentError(
      absl::StrCat("binding: expected shadow or in_place, found \"", name, "\"")));
}

std::shared_ptr<const LocalPlan> Planned(const ReshardInputs& inputs) {
  return std::make_shared<const LocalPlan>(
      Interruptibly([&inputs](CancelCheck cancelled) { return MakeLocalPlan(inputs, cancelled); }));
}

std::shared_ptr<SimulatedRun> Simulated(const std::shared_ptr<const LocalPlan>& made) {
  SimulatedTimeline timeline = Interruptibly([&made](CancelCheck cancelled) {
    return Simulate(made->plan, made->topology, {.keep_transfers = true}, cancelled);
  });
  return std::make_shared<SimulatedRun>(SimulatedRun{made, std::move(timeline)});
}

void BindInputs(nb::module_& module) {
  nb::class_<ReshardInputs>(module, "Inputs", "What a reshard is planned from.")
      .def(
          "__init__",
          [](ReshardInputs* self, const Manifest& manifest) {
            new (self) ReshardInputs{.manifest = std::make_shared<const Manifest>(manifest)};
          },
          nb::arg("manifest"))
      .def(
          "set_source",
          [](ReshardInputs& self, const Mesh& mesh, const TextRules& rules) {
            self.source = SideOf(mesh, rules);
          },
          nb::arg("mesh"), nb::arg("rules"))
      .def(
          "set_destination",
          [](ReshardInputs& self, const Mesh& mesh, const TextRules& rules) {
            self.destination = SideOf(mesh, rules);
          },
          nb::arg("mesh"), nb::arg("rules"))
      .def(
          "set_topology",
          [](ReshardInputs& self, const std::string& text) {
            self.topology = OrRaise(At("topology", ParseTopologyFile(text)));
          },
          nb::arg("text"))
      .def(
          "set_binding",
          [](ReshardInputs& self, const std::string& name) { self.binding = BindingOf(name); },
          nb::arg("name"))
      .def(
          "set_device_bytes_max",
          [](ReshardInputs& self, int64_t bytes) { self.limits.device_bytes_max = bytes; },
          nb::arg("bytes"))
      .def_rw("replica_axes", &ReshardInputs::replica_axes)
      .def_rw("strategy", &ReshardInputs::strategy)
      .def_rw("seed", &ReshardInputs::seed)
      .def_rw("chunk_bytes", &ReshardInputs::chunk_bytes)
      .def_rw("nic_share", &ReshardInputs::nic_share)
      .def_rw("no_broadcasts", &ReshardInputs::no_broadcasts)
      .def_rw("shared_storage", &ReshardInputs::shared_storage);
}

void BindRun(nb::module_& module) {
  nb::class_<SimulatedRun>(module, "Run", "A run of a plan on its network, simulated.")
      .def_prop_ro("seconds", [](const SimulatedRun& self) { return self.timeline.seconds; })
      .def_prop_ro(
          "ports",
          [](const SimulatedRun& self) {
            nb::list ports;
            for (size_t i = 0; i < self.timeline.ports.size(); ++i) {
              const NetworkPort& port = self.timeline.ports[i];
              ports.append(nb::make_tuple(port.name,
                                          std::string(ToProto(PortPrice{port.kind}).port()),
                                          port.bytes_per_second, self.timeline.port_bytes[i]));
            }
            return ports;
          },
          nb::sig("def ports(self) -> list[tuple[str, str, float, float]]"),
          "Name, kind, rate in bytes a second, and bytes that passed, of every port.")
      .def_prop_ro("transfers",
                   [](const SimulatedRun& self) { return self.timeline.transfers.size(); })
      .def("picture", [](const SimulatedRun& self) {
        return PlanPicture(self.made->plan, self.made->topology, self.timeline);
      });
}

}  // namespace

void BindPlan(nb::module_& module) {
  BindInputs(module);
  BindRun(module);
  nb::class_<LocalPlan>(module, "Plan", "A plan, proven. Immutable.")
      .def_prop_ro("id", [](const LocalPlan& self) { return self.plan.id().ToString(); })
      .def("summary_json", [](const LocalPlan& self) { return JsonTextOf(self.Summary()); })
      .def(
          "text", [](const LocalPlan& self, int64_t relays) { return ToText(self.plan, relays); },
          nb::arg("relays") = 1000, "The plan's routes, of so many relays.")
      .def(
          "simulate", [](const std::shared_ptr<LocalPlan>& self) { return Simulated(self); },
          "Runs the plan on its network, chunk by chunk.");
  module.def(
      "plan",
      [](const ReshardInputs& inputs) {
        return std::const_pointer_cast<LocalPlan>(Planned(inputs));
      },
      nb::arg("inputs"), "Plans and proves. Other threads run meanwhile; Ctrl-C ends it.");
  module.def(
      "strategies",
      [] {
        std::vector<std::string> names;
        for (const Strategy strategy : kAllStrategies) names.emplace_back(StrategyName(strategy));
        return names;
      },
      "Names of the strategies that any devices can run.");
}

}  // namespace crossmesh
