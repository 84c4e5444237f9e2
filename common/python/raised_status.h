#pragma once

#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

namespace crossmesh {

// Raises the exception of crossmesh.errors for a status that is not OK. The GIL must be held.
[[noreturn]] inline void RaiseStatus(const absl::Status& status) {
  namespace nb = nanobind;
  const nb::object error =
      nb::module_::import_("crossmesh.errors")
          .attr("error_of")(static_cast<int>(status.code()), std::string(status.message()));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

inline void OrRaise(const absl::Status& status) {
  if (!status.ok()) RaiseStatus(status);
}

template <typename Value>
Value OrRaise(absl::StatusOr<Value> result) {
  if (!result.ok()) RaiseStatus(result.status());
  return *std::move(result);
}

}  // namespace crossmesh
