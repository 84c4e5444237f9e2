#include "client/python/extension/bindings.h"

#include <nanobind/nanobind.h>

NB_MODULE(_core, module) {
  module.doc() = "Layouts, manifests, plans and schedules, as the daemons have them.";
  crossmesh::BindMesh(module);
  crossmesh::BindLayout(module);
  crossmesh::BindManifest(module);
  crossmesh::BindPlan(module);
  crossmesh::BindSchedules(module);
  crossmesh::BindStorage(module);
}
