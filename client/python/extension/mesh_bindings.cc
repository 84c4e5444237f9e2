#include "client/python/extension/bindings.h"
#include "client/python/extension/python_values.h"
#include "common/mesh/mesh.h"
#include "common/python/raised_status.h"

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

namespace crossmesh {
namespace nb = nanobind;
namespace {

using AxisSizes = std::vector<std::pair<std::string, int64_t>>;
using DeviceNames = std::variant<std::string, std::vector<std::string>>;

Mesh MeshOf(const std::variant<nb::dict, AxisSizes>& axes, const DeviceNames& devices) {
  AxisSizes sizes;
  if (const auto* pairs = std::get_if<AxisSizes>(&axes)) {
    sizes = *pairs;
  } else {
    for (const auto& [name, size] : std::get<nb::dict>(axes)) {
      sizes.emplace_back(nb::cast<std::string>(name), nb::cast<int64_t>(size));
    }
  }
  std::vector<Axis> named;
  for (auto& [name, size] : sizes) named.push_back({std::move(name), size});
  const auto* text = std::get_if<std::string>(&devices);
  return OrRaise(Mesh::Create(
      std::move(named),
      OrRaise(ParseDevices(
          text != nullptr ? *text
                          : absl::StrJoin(std::get<std::vector<std::string>>(devices), ",")))));
}

void CheckSlot(const Mesh& mesh, int64_t slot) {
  if (slot >= 0 && slot < mesh.slots()) return;
  RaiseStatus(absl::InvalidArgumentError(
      absl::StrCat("slot: expected 0 to ", mesh.slots() - 1, ", found ", slot)));
}

Coordinates CoordinatesOf(const Mesh& mesh, int64_t slot) {
  CheckSlot(mesh, slot);
  Coordinates coordinates;
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    coordinates.emplace_back(mesh.axes()[axis].name, mesh.Coordinate(slot, axis));
  }
  return coordinates;
}

Mesh SelectedFrom(const Mesh& mesh, const nb::kwargs& fixed) {
  Coordinates coordinates;
  for (const auto& [axis, value] : fixed) {
    coordinates.emplace_back(nb::cast<std::string>(axis), nb::cast<int64_t>(value));
  }
  return OrRaise(mesh.Select(coordinates));
}

AxisSizes AxesOf(const Mesh& mesh) {
  AxisSizes axes;
  for (const Axis& axis : mesh.axes()) axes.emplace_back(axis.name, axis.size);
  return axes;
}

std::vector<std::string> DevicesOf(const Mesh& mesh) {
  std::vector<std::string> devices;
  for (const DeviceId& device : mesh.devices()) devices.push_back(ToString(device));
  return devices;
}

}  // namespace

void BindMesh(nb::module_& module) {
  nb::class_<Mesh>(
      module, "Mesh",
      "Named axes over an ordered list of slots, each bound to a device HOST.INDEX.\n\n"
      "Slots are numbered row-major, the last axis running fastest. Immutable.")
      .def(
          "__init__",
          [](Mesh* self, const std::string& text) { new (self) Mesh(OrRaise(ParseMesh(text))); },
          nb::arg("text"),
          "From its text, such as `data=2,model=2 on a.0-1,b.0-1`. Raises InvalidArgumentError.")
      .def_static("of", &MeshOf, nb::arg("axes"), nb::arg("devices"),
                  nb::sig("def of(axes: dict[str, int] | "
                          "collections.abc.Sequence[tuple[str, int]], "
                          "devices: str | collections.abc.Sequence[str]) -> Mesh"),
                  "From axes `{name: size}` or pairs of these, and devices in slot order, such as "
                  "`'a.0-3'` or `['a.0', 'a.1']`. Raises InvalidArgumentError for names that are "
                  "malformed or there twice, and another count of devices than of slots.")
      .def_prop_ro("axes", &AxesOf, "Names and sizes, major first.")
      .def_prop_ro("devices", &DevicesOf, "In slot order.")
      .def_prop_ro(
          "axes_text", [](const Mesh& mesh) { return AxesToString(mesh.axes()); },
          "The axes' part of its text.")
      .def_prop_ro(
          "devices_text", [](const Mesh& mesh) { return DevicesToString(mesh.devices()); },
          "The devices' part of its text.")
      .def_prop_ro("slots", &Mesh::slots, "How many there are.")
      .def(
          "coordinates",
          [](const Mesh& mesh, int64_t slot) { return ToPython(CoordinatesOf(mesh, slot)); },
          nb::arg("slot"), nb::sig("def coordinates(self, slot: int) -> dict[str, int]"),
          "Where a slot is on each axis. Raises InvalidArgumentError for a slot that is none.")
      .def("select", &SelectedFrom, nb::arg("coordinates"),
           nb::sig("def select(self, **coordinates: int) -> Mesh"),
           "The sub-mesh at fixed coordinates of some axes, which go away. Raises "
           "InvalidArgumentError for an axis, or a coordinate, that there is not.")
      .def("__len__", &Mesh::slots)
      .def("__str__", [](const Mesh& mesh) { return ToString(mesh); })
      .def("__repr__",
           [](const Mesh& mesh) { return absl::StrCat("Mesh('", ToString(mesh), "')"); })
      .def(
          "_repr_svg_", [](nb::handle mesh) { return DrawnByPackage("svg_of_mesh", mesh); },
          nb::sig("def _repr_svg_(self) -> str"), "A picture, for notebooks.")
      .def(
          "__eq__",
          [](const Mesh& mesh, nb::handle other) {
            return nb::isinstance<Mesh>(other) && mesh == nb::cast<const Mesh&>(other);
          },
          nb::arg("other"), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const Mesh& mesh) { return nb::hash(nb::cast(ToString(mesh))); })
      .def(
          "__reduce__",
          [](const Mesh& mesh) {
            return nb::make_tuple(nb::type<Mesh>(), nb::make_tuple(ToString(mesh)));
          },
          nb::sig("def __reduce__(self) -> tuple[type[Mesh], tuple[str]]"));
}

}  // namespace crossmesh
