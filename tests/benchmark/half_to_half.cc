#include "tests/benchmark/half_to_half.h"

#include "common/base/check.h"
#include "common/mesh/manifest.h"
#include "common/wire/tensor_codec.h"

#include <utility>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

// Of 64 columns, the first of so many rows, and each next one of a row more.
Manifest Matrices(int count, int64_t rows) {
  std::vector<TensorSpec> tensors;
  for (int i = 0; i < count; ++i) {
    tensors.push_back(
        {.name = absl::StrCat("m", i), .shape = Shape::Create({{rows + i, 64}}).value()});
  }
  absl::StatusOr<Manifest> manifest = Manifest::Create(std::move(tensors));
  CHECK_OK(manifest);
  return *std::move(manifest);
}

void SetSide(v1::ReshardSide& side, const std::string& axes, const std::vector<std::string>& hosts,
             const std::string& storage) {
  side.mutable_inline_mesh()->set_axes(axes);
  side.mutable_inline_mesh()->set_devices(absl::StrJoin(
      hosts, ",",
      [](std::string* out, const std::string& host) { absl::StrAppend(out, host, ".0"); }));
  v1::LayoutRule& rule = *side.add_rules();
  rule.set_pattern("*");
  rule.set_layout("[x, -]");
  side.set_storage(storage);
}

}  // namespace

v1::ReshardSpec HalfToHalf(const std::vector<std::string>& hosts) {
  const auto half = static_cast<int64_t>(hosts.size()) / 2;
  v1::ReshardSpec spec;
  *spec.mutable_inline_manifest() = ToProto(Matrices(1, 64 * half));
  const std::string axes = absl::StrCat("x=", half);
  SetSide(*spec.mutable_source(), axes, {hosts.begin(), hosts.begin() + half}, "from");
  SetSide(*spec.mutable_destination(), axes, {hosts.begin() + half, hosts.end()}, "to");
  return spec;
}

v1::PlanReshardRequest NumberedPlan(int64_t number, int matrices) {
  std::vector<std::string> hosts;
  for (int i = 0; i < 128; ++i) hosts.push_back(absl::StrCat("p", i));
  v1::PlanReshardRequest request;
  *request.mutable_spec() = HalfToHalf(hosts);
  *request.mutable_spec()->mutable_inline_manifest() =
      ToProto(Matrices(matrices, 4096 + matrices * number));
  request.mutable_spec()->mutable_source()->mutable_rules(0)->set_layout("[x, -] chunk");
  request.mutable_spec()->mutable_destination()->mutable_rules(0)->set_layout("[-, x] chunk");
  return request;
}

}  // namespace crossmesh
