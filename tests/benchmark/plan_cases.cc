#include "tests/benchmark/plan_cases.h"

#include "common/base/check.h"
#include "tests/benchmark/models.h"

#include <functional>
#include <utility>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

// A mesh over the devices of hosts named after `prefix`.
Mesh MeshOver(const std::string& prefix, std::vector<Axis> axes, int devices_per_host = 8) {
  int64_t slots = 1;
  for (const Axis& axis : axes) slots *= axis.size;
  std::vector<DeviceId> devices;
  for (int64_t slot = 0; slot < slots; ++slot) {
    devices.push_back({.host = absl::StrCat(prefix, slot / devices_per_host),
                       .index = static_cast<int32_t>(slot % devices_per_host)});
  }
  absl::StatusOr<Mesh> mesh = Mesh::Create(std::move(axes), std::move(devices));
  CHECK_OK(mesh);
  return *std::move(mesh);
}

LayoutRules Rules(absl::string_view text) {
  absl::StatusOr<LayoutRules> rules = LayoutRules::Parse(text);
  CHECK_OK(rules);
  return *std::move(rules);
}

PlanCase Replicated() {
  return {.manifest = OneMatrix(8192, 8192),
          .source_mesh = MeshOver("a", {{"x", 1024}}),
          .source_rules = Rules("* [...]"),
          .destination_mesh = MeshOver("b", {{"y", 1024}}),
          .destination_rules = Rules("* [...]")};
}

PlanCase Transposed(int64_t slots) {
  return {.manifest = OneMatrix(8192, 8192),
          .source_mesh = MeshOver("a", {{"x", slots}}),
          .source_rules = Rules("* [x, -]"),
          .destination_mesh = MeshOver("b", {{"y", slots}}),
          .destination_rules = Rules("* [-, y]")};
}

// From FSDP on so many hosts of 8 slots; the rest is to be filled in.
PlanCase Qwen3(int64_t hosts = 32) {
  return {.manifest = Qwen3Manifest(),
          .source_mesh = MeshOver("a", {{"node", hosts}, {"local", 8}}),
          .source_rules = Rules("* [node*local, ...] nested_chunk")};
}

PlanCase Qwen3ToExperts() {
  PlanCase result = Qwen3();
  result.destination_mesh = MeshOver("b", {{"expert", 32}, {"tensor", 4}});
  result.destination_rules = Rules(R"(
      *.experts.{e}.down_proj.weight  [-, tensor]  on expert={e}/4
      *.experts.{e}.*_proj.weight     [tensor, -]  on expert={e}/4
      *.o_proj.weight                 [-, tensor]
      *_proj.weight                   [tensor, -]
      *embed_tokens.weight            [tensor, -]
      lm_head.weight                  [tensor, -]
      *                               [...])");
  return result;
}

// 16 GiB, an eighth on each of 8 hosts, to all of 4,088 hosts x 4 devices.
PlanCase Everywhere() {
  return {.manifest = OneMatrix(65536, 65536),
          .source_mesh = MeshOver("a", {{"x", 8}}, 1),
          .source_rules = Rules("* [x, -]"),
          .destination_mesh = MeshOver("b", {{"host", 4088}, {"device", 4}}, 4),
          .destination_rules = Rules("* [...]")};
}

struct NamedCase {
  std::string name;
  std::function<PlanCase()> make;
};

const std::vector<NamedCase>& Cases() {
  static const auto& cases =
      *new std::vector<NamedCase>{{"replicated", Replicated},
                                  {"transposed_32", [] { return Transposed(32); }},
                                  {"transposed_128", [] { return Transposed(128); }},
                                  {"transposed_1024", [] { return Transposed(1024); }},
                                  {"qwen3_replicas", [] { return Qwen3ToReplicas(32, 16); }},
                                  {"qwen3_experts", Qwen3ToExperts},
                                  {"qwen3_1024", [] { return Qwen3ToReplicas(128, 64); }},
                                  {"everywhere", Everywhere}};
  return cases;
}

}  // namespace

PlanCase Qwen3ToReplicas(int64_t hosts, int64_t replicas) {
  PlanCase result = Qwen3(hosts);
  result.destination_mesh = MeshOver("b", {{"replica", replicas}, {"tensor", 8}});
  result.destination_rules = Rules(R"(
      *.o_proj.weight     [-, tensor]
      *.down_proj.weight  [-, tensor]
      *_proj.weight       [tensor, -]
      *embed_tokens.weight [tensor, -]
      lm_head.weight      [tensor, -]
      *                   [...])");
  result.replica_axes = {"replica"};
  return result;
}

std::vector<std::string> PlanCaseNames() {
  std::vector<std::string> names;
  for (const NamedCase& named : Cases()) names.push_back(named.name);
  return names;
}

PlanCase MakePlanCase(const std::string& name) {
  for (const NamedCase& named : Cases()) {
    if (named.name == name) return named.make();
  }
  CHECK(false) << "no case " << name;
  return {};
}

}  // namespace crossmesh
