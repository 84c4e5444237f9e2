#include "common/plan/testing/tables.h"

#include "common/base/check.h"
#include "common/plan/scale_tensors.h"

#include <tuple>
#include <utility>

#include <absl/status/statusor.h>

namespace crossmesh {
namespace {

template <typename T>
T Parsed(absl::StatusOr<T> value) {
  CHECK_OK(value);
  return *std::move(value);
}

// The first part of `text` up to `separator`, which is taken off with it.
std::string TakeUpTo(absl::string_view separator, absl::string_view& text) {
  const size_t end = text.find(separator);
  CHECK(end != absl::string_view::npos) << "no \"" << separator << "\" in " << text;
  const std::string part(text.substr(0, end));
  text.remove_prefix(end + separator.size());
  return part;
}

// "x=2 on a.0-1 [x, -]": the mesh ends where the layout begins.
std::pair<std::string, std::string> MeshAndLayout(const std::string& side) {
  const size_t layout = side.find_first_of("[{");
  CHECK(layout != std::string::npos && layout > 0) << "no layout in " << side;
  return {side.substr(0, layout - 1), side.substr(layout)};
}

}  // namespace

TensorText TensorOf(absl::string_view text, DataType type, std::optional<DataType> sent_as) {
  TensorText tensor{.type = type, .sent_as = sent_as};
  tensor.shape = TakeUpTo(": ", text);
  std::tie(tensor.source_mesh, tensor.source) = MeshAndLayout(TakeUpTo(" -> ", text));
  std::tie(tensor.destination_mesh, tensor.destination) = MeshAndLayout(std::string(text));
  return tensor;
}

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
