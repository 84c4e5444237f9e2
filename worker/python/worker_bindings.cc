#include "common/base/log.h"
#include "common/mesh/mesh.h"
#include "common/python/raised_status.h"
#include "worker/python/embedded_worker.h"
#include "worker/python/rank_loop.h"
#include "worker/worker_options.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace crossmesh {
namespace nb = nanobind;
namespace {

void BindOptions(nb::module_& module) {
  using Options = WorkerOptions;
  nb::class_<Options>(module, "WorkerOptions", "As the daemon's flags.")
      .def(nb::init<>())
      .def_rw("name", &Options::name)
      .def_rw("controllers", &Options::controllers)
      .def_rw("listen", &Options::listen)
      .def_rw("memory_socket", &Options::memory_socket)
      .def_rw("metrics_listen", &Options::metrics_listen)
      .def_rw("memory_max", &Options::memory_max)
      .def_rw("state_folder", &Options::state_folder)
      .def_prop_rw(
          "devices", [](const Options& options) { return DevicesToString(options.devices); },
          [](Options& options, const std::string& text) {
            options.devices = OrRaise(ParseDevices(text));
          })
      .def_prop_rw(
          "version_refused_max",
          [](const Options& options) -> std::optional<double> {
            if (!options.version_refused_max.has_value()) return std::nullopt;
            return absl::ToDoubleSeconds(*options.version_refused_max);
          },
          [](Options& options, double seconds) {
            options.version_refused_max = absl::Seconds(seconds);
          })
      .def_prop_rw(
          "insecure", [](const Options& options) { return options.insecure; },
          [](Options& options, bool value) { options.insecure = options.data.insecure = value; })
      .def_prop_rw(
          "interfaces", [](const Options& options) { return options.data.interfaces; },
          [](Options& options, std::vector<std::string> names) {
            options.data.interfaces = std::move(names);
          })
      .def_prop_rw(
          "trusted_networks", [](const Options& options) { return options.data.trusted_networks; },
          [](Options& options, std::vector<std::string> networks) {
            options.data.trusted_networks = std::move(networks);
          });
}

void SetLogLevel(const std::string& name) {
  const std::optional<LogLevel> level = ParseLogLevel(name);
  if (!level.has_value()) {
    RaiseStatus(absl::InvalidArgumentError(
        absl::StrCat("log level: expected debug, info, warning or error, found \"", name, "\"")));
  }
  SetMinimumLogLevel(*level);
}

nb::tuple StatusToPython(const StorageStatus& status) {
  return nb::make_tuple(status.bytes, status.generation, status.state == StorageState::kDirty);
}

void BindWorker(nb::module_& module) {
  nb::class_<EmbeddedWorker>(module, "EmbeddedWorker", "A worker in this process.")
      .def(nb::init<WorkerOptions>(), nb::arg("options"))
      .def_prop_ro("name", &EmbeddedWorker::name)
      .def_prop_ro("devices", &EmbeddedWorker::devices)
      .def_prop_ro("execution_address", &EmbeddedWorker::execution_address)
      .def("stop", &EmbeddedWorker::Stop, nb::arg("drain_seconds"))
      .def("wait", &EmbeddedWorker::Wait, nb::arg("seconds").none())
      .def("lend", &EmbeddedWorker::Lend, nb::arg("storage"), nb::arg("device"), nb::arg("memory"))
      .def("release", &EmbeddedWorker::Release, nb::arg("storage"), nb::arg("device"),
           nb::arg("seconds"))
      .def(
          "status",
          [](const EmbeddedWorker& worker, const std::string& storage, const std::string& device) {
            return StatusToPython(worker.Status(storage, device));
          },
          nb::arg("storage"), nb::arg("device"),
          nb::sig("def status(self, storage: str, device: str) -> tuple[int, int, bool]"))
      .def(
          "wait_for_pipeline",
          [](const std::shared_ptr<EmbeddedWorker>& worker, std::optional<double> seconds) {
            return std::make_shared<RankLoop>(worker, worker->WaitForPipeline(seconds));
          },
          nb::arg("seconds").none(),
          nb::sig("def wait_for_pipeline(self, seconds: float | None) -> RankLoop"));
}

std::vector<std::string> OpNamesOf(const RankLoop& loop) {
  std::vector<std::string> names;
  for (const Op& op : loop.loop().ops()) names.push_back(ToString(op));
  return names;
}

void BindLoop(nb::module_& module) {
  nb::class_<RankLoop>(module, "RankLoop", "A rank of a run, computed by one thread.")
      .def_prop_ro("rank", [](const RankLoop& loop) { return loop.loop().rank(); })
      .def_prop_ro("ops", &OpNamesOf)
      .def(
          "next",
          [](nb::handle_t<RankLoop> self) {
            const PipelineStep& step = nb::cast<RankLoop&>(self).Next();
            if (step.kind == PipelineStep::Kind::kOver) OrRaise(step.why);
            return StepToPython(step, self);
          },
          nb::sig("def next(self) -> tuple[str, typing.Any, typing.Any, int, tuple[int, ...]]"))
      .def("done", [](RankLoop& loop) { loop.Answer(absl::OkStatus()); })
      .def(
          "fail",
          [](RankLoop& loop, int code, const std::string& why) {
            loop.Answer(absl::Status(static_cast<absl::StatusCode>(code), why));
          },
          nb::arg("code"), nb::arg("why"))
      .def("leave", &RankLoop::Leave);
}

}  // namespace
}  // namespace crossmesh

NB_MODULE(_worker, module) {
  // An interpreter may end with arrays of a worker's memory held.
  nanobind::set_leak_warnings(false);
  module.doc() = "A worker in this process.";
  crossmesh::BindOptions(module);
  crossmesh::BindWorker(module);
  crossmesh::BindLoop(module);
  module.def("set_log_level", &crossmesh::SetLogLevel, nanobind::arg("name"),
             "Of this process's workers: debug, info, warning or error.");
}
