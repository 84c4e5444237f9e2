#include "client/python/extension/raised_status.h"

#include <string>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

namespace crossmesh {

void RaiseStatus(const absl::Status& status) {
  namespace nb = nanobind;
  const nb::object error =
      nb::module_::import_("crossmesh.errors")
          .attr("error_of")(static_cast<int>(status.code()), std::string(status.message()));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

}  // namespace crossmesh
