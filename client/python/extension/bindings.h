#pragma once

#include "common/mesh/layout_rules.h"

#include <string>

#include <nanobind/nanobind.h>

namespace crossmesh {

// Layout rules with the text that they were read from.
struct TextRules {
  std::string text;
  LayoutRules rules;
};

// Each adds classes and functions to the extension, in this order.
void BindMesh(nanobind::module_& module);
void BindLayout(nanobind::module_& module);
void BindManifest(nanobind::module_& module);
void BindPlan(nanobind::module_& module);
void BindSchedules(nanobind::module_& module);
void BindStorage(nanobind::module_& module);

// What a function of crossmesh._pictures makes of an object. Notebooks ask the object itself, and
// its class is defined here.
inline nanobind::object DrawnByPackage(const char* function, nanobind::handle object) {
  return nanobind::module_::import_("crossmesh._pictures").attr(function)(object);
}

}  // namespace crossmesh
