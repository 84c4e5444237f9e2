#include "common/plan/testing/tables.h"

#include "common/base/check.h"
#include "common/plan/scale_tensors.h"

#include <utility>

#include <absl/status/statusor.h>

namespace crossmesh {
namespace {

template <typename T>
T Parsed(absl::StatusOr<T> value) {
  CHECK_OK(value);
  return *std::move(value);
}

}  // namespace

TensorTable::Spec TableSpecOf(const std::vector<TensorText>& tensors) {
  TensorTable::Spec spec;
  for (const TensorText& text : tensors) {
    const auto index = static_cast<int32_t>(spec.groups.size());
    spec.sources.push_back({Parsed(ParseMesh(text.source_mesh)), Parsed(ParseLayout(text.source))});
    spec.destinations.push_back(
        {Parsed(ParseMesh(text.destination_mesh)), Parsed(ParseLayout(text.destination))});
    spec.groups.push_back({Parsed(ParseShape(text.shape)), text.type, index, index, text.sent_as});
    spec.group_of_tensor.push_back(index);
  }
  return spec;
}

TensorTable TableOf(const std::vector<TensorText>& tensors, std::vector<std::string> replica_axes) {
  TensorTable::Spec spec = TableSpecOf(tensors);
  spec.replica_axes = std::move(replica_axes);
  CHECK_OK(AddScales(spec));
  return Parsed(TensorTable::Create(std::move(spec)));
}

}  // namespace crossmesh
