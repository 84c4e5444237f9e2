#include "client/python/extension/bindings.h"
#include "client/python/extension/python_values.h"
#include "client/safetensors/collection.h"
#include "common/mesh/data_type.h"
#include "common/mesh/manifest.h"
#include "common/mesh/manifest_file.h"
#include "common/python/raised_status.h"
#include "common/wire/tensor_codec.h"
#include "crossmesh/v1/tensor.pb.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace nb = nanobind;
namespace {

std::vector<int64_t> LengthsOf(const TensorSpec& tensor) {
  return {tensor.shape.lengths().begin(), tensor.shape.lengths().end()};
}

std::string TextOfTensor(const TensorSpec& tensor) {
  return absl::StrCat("Tensor(", nb::repr(nb::cast(tensor.name)).c_str(), ", '",
                      DataTypeName(tensor.type), "', ", ToString(tensor.shape), ")");
}

std::string ManifestText(const Manifest& manifest) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const TensorSpec& tensor : manifest.tensors()) {
    tensors.push_back({{"name", tensor.name},
                       {"dtype", std::string(DataTypeName(tensor.type))},
                       {"shape", LengthsOf(tensor)}});
  }
  return nlohmann::json{{"total_bytes", manifest.bytes()}, {"tensors", tensors}}.dump();
}

nb::bytes MessageOf(const Manifest& manifest) {
  const std::string message = ToProto(manifest).SerializeAsString();
  return nb::bytes(message.data(), message.size());
}

TensorSpec FoundIn(const Manifest& manifest, const std::string& name) {
  const std::optional<int64_t> index = manifest.Find(name);
  if (!index) {
    RaiseStatus(absl::NotFoundError(absl::StrCat("tensor \"", name, "\": not among the ",
                                                 manifest.tensors().size(), " of the manifest")));
  }
  return manifest.tensors()[*index];
}

void BindTensor(nb::module_& module) {
  nb::class_<TensorSpec>(module, "Tensor", "A tensor's name, element type and shape. Immutable.")
      .def(
          "__init__",
          [](TensorSpec* self, std::string name, const std::string& dtype,
             const std::vector<int64_t>& shape) {
            new (self) TensorSpec{.name = std::move(name),
                                  .type = OrRaise(ParseDataType(dtype)),
                                  .shape = ShapeOf(shape)};
          },
          nb::arg("name"), nb::arg("dtype"), nb::arg("shape"),
          "`dtype` as in safetensors files: BF16, F32, F8_E4M3, ... Raises InvalidArgumentError "
          "for others, and for a length below 0.")
      .def_ro("name", &TensorSpec::name, "Unique in its manifest.")
      .def_prop_ro(
          "dtype", [](const TensorSpec& self) { return std::string(DataTypeName(self.type)); },
          "As in safetensors files.")
      .def_prop_ro(
          "shape", [](const TensorSpec& self) { return nb::tuple(nb::cast(LengthsOf(self))); },
          nb::sig("def shape(self) -> tuple[int, ...]"), "The lengths of its dimensions.")
      .def_prop_ro("bytes", &TensorSpec::bytes, "Of all its elements.")
      .def("__repr__", &TextOfTensor)
      .def(
          "__eq__",
          [](const TensorSpec& self, nb::handle other) {
            return nb::isinstance<TensorSpec>(other) && self == nb::cast<const TensorSpec&>(other);
          },
          nb::arg("other"), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__",
           [](const TensorSpec& self) { return nb::hash(nb::cast(TextOfTensor(self))); })
      .def(
          "__reduce__",
          [](const TensorSpec& self) {
            return nb::make_tuple(
                nb::type<TensorSpec>(),
                nb::make_tuple(self.name, std::string(DataTypeName(self.type)), LengthsOf(self)));
          },
          nb::sig("def __reduce__(self) -> tuple[type[Tensor], tuple[str, str, list[int]]]"));
}

}  // namespace

void BindManifest(nb::module_& module) {
  BindTensor(module);
  nb::class_<Manifest>(module, "Manifest", "The ordered list of a model's tensors. Immutable.")
      .def(
          "__init__",
          [](Manifest* self, std::vector<TensorSpec> tensors) {
            new (self) Manifest(OrRaise(Manifest::Create(std::move(tensors))));
          },
          nb::arg("tensors"),
          "Of tensors, in their order. Raises InvalidArgumentError for a name that is there twice.")
      .def_static(
          "from_json",
          [](const std::string& text) { return OrRaise(ParseManifestFile(text)).manifest; },
          nb::arg("text"),
          "From the text of a manifest file. Raises InvalidArgumentError naming the tensor.")
      .def_static(
          "of_safetensors",
          [](const std::string& path) {
            return OrRaise(SafetensorsCollection::Open(path)).manifest();
          },
          nb::arg("path"),
          "Of a safetensors file or a folder of them at that path, with or without an index. Only "
          "headers are read. Raises NotFoundError, InvalidArgumentError as crossmesh.manifest().")
      .def("to_json", &ManifestText, "The text of a manifest file.")
      .def("to_message", &MessageOf, "The bytes of the API's message Manifest.")
      .def_prop_ro("tensors", &Manifest::tensors, "In order.")
      .def_prop_ro("bytes", &Manifest::bytes, "Of all tensors.")
      .def_prop_ro(
          "digest", [](const Manifest& self) { return self.digest().ToString(); },
          "Of names, types and shapes in order.")
      .def("__getitem__", &FoundIn, nb::arg("name"), "The tensor of that name.")
      .def(
          "__contains__",
          [](const Manifest& self, const std::string& name) { return self.Find(name).has_value(); },
          nb::arg("name"))
      .def("__len__", [](const Manifest& self) { return self.tensors().size(); })
      .def(
          "__iter__", [](const Manifest& self) { return nb::iter(nb::cast(self.tensors())); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[Tensor]"))
      .def("__repr__",
           [](const Manifest& self) {
             return absl::StrCat("<Manifest of ", self.tensors().size(), " tensors, ", self.bytes(),
                                 " bytes>");
           })
      .def(
          "__eq__",
          [](const Manifest& self, nb::handle other) {
            return nb::isinstance<Manifest>(other) && self == nb::cast<const Manifest&>(other);
          },
          nb::arg("other"), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__",
           [](const Manifest& self) { return nb::hash(nb::cast(self.digest().ToString())); })
      .def(
          "__reduce__",
          [](const Manifest& self) {
            return nb::make_tuple(nb::type<Manifest>(), nb::make_tuple(self.tensors()));
          },
          nb::sig("def __reduce__(self) -> tuple[type[Manifest], tuple[list[Tensor]]]"));
}

}  // namespace crossmesh
