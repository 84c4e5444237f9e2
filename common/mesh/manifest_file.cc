#include "common/mesh/manifest_file.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/mesh/json_reader.h"

#include <array>
#include <utility>
#include <vector>

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using nlohmann::json;

constexpr std::array<absl::string_view, 4> kManifestFileKeys = {"model", "source", "total_bytes",
                                                                "tensors"};
constexpr std::array<absl::string_view, 3> kTensorKeys = {"name", "shape", "dtype"};

// Names the tensor as soon as its name is known.
std::string Where(const json& value, size_t index) {
  std::string where = absl::StrCat("manifest file tensors[", index, "]");
  if (!value.is_object()) return where;
  const auto name = value.find("name");
  if (name == value.end() || !name->is_string()) return where;
  const absl::string_view text = name->get_ref<const std::string&>();
  return absl::StrCat(where, " \"", absl::CHexEscape(text.substr(0, 80)), "\"");
}

absl::StatusOr<TensorSpec> ReadTensor(const json& value, size_t index) {
  ASSIGN_OR_RETURN(const JsonFields fields,
                   JsonFields::Of(value, Where(value, index), kTensorKeys));
  TensorSpec tensor;
  ASSIGN_OR_RETURN(tensor.name, fields.String("name"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> lengths, fields.Integers("shape"));
  ASSIGN_OR_RETURN(const std::string type_name, fields.String("dtype"));
  ASSIGN_OR_RETURN(tensor.shape, At(fields.where(), Shape::Create(lengths)));
  ASSIGN_OR_RETURN(tensor.type, At(fields.where(), ParseDataType(type_name)));
  return tensor;
}

absl::StatusOr<Manifest> ReadTensors(const json& array) {
  std::vector<TensorSpec> tensors;
  tensors.reserve(array.size());
  for (const json& value : array) {
    ASSIGN_OR_RETURN(tensors.emplace_back(), ReadTensor(value, tensors.size()));
  }
  return Manifest::Create(std::move(tensors));
}

}  // namespace

absl::StatusOr<ManifestFile> ParseManifestFile(absl::string_view text) {
  ASSIGN_OR_RETURN(const json document, ParseJson("manifest file", text));
  ASSIGN_OR_RETURN(const JsonFields fields,
                   JsonFields::Of(document, "manifest file", kManifestFileKeys));
  ManifestFile file;
  if (fields.Has("model")) {
    ASSIGN_OR_RETURN(file.model, fields.String("model"));
  }
  if (fields.Has("source")) {
    ASSIGN_OR_RETURN(file.source, fields.String("source"));
  }
  ASSIGN_OR_RETURN(const json* tensors, fields.Array("tensors"));
  ASSIGN_OR_RETURN(file.manifest, ReadTensors(*tensors));
  if (fields.Has("total_bytes")) {
    ASSIGN_OR_RETURN(const int64_t total, fields.Integer("total_bytes"));
    if (total != file.manifest.bytes()) {
      return absl::InvalidArgumentError(
          absl::StrCat("manifest file: expected \"total_bytes\" to be the sum of its tensors, ",
                       file.manifest.bytes(), ", found ", total));
    }
  }
  return file;
}

}  // namespace crossmesh
