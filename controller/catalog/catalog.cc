#include "controller/catalog/catalog.h"

#include "common/base/status_macros.h"
#include "common/plan/plan_memory.h"
#include "crossmesh/v1/tensor.pb.h"

#include <string>
#include <utility>
#include <vector>

namespace crossmesh {
namespace {

std::string EncodeMesh(const Mesh& mesh) { return ToString(mesh); }

absl::StatusOr<Mesh> DecodeMesh(const std::string& bytes) { return ParseMesh(bytes); }

std::string EncodeManifest(const Manifest& manifest) {
  v1::Manifest message;
  for (const TensorSpec& tensor : manifest.tensors()) {
    v1::TensorSpec* out = message.add_tensors();
    out->set_name(tensor.name);
    out->set_dtype(std::string(DataTypeName(tensor.type)));
    for (const int64_t length : tensor.shape.lengths()) out->add_shape(length);
  }
  return message.SerializeAsString();
}

absl::StatusOr<Manifest> DecodeManifest(const std::string& bytes) {
  v1::Manifest message;
  if (!message.ParseFromString(bytes)) return absl::InternalError("bytes do not parse");
  std::vector<TensorSpec> tensors;
  tensors.reserve(message.tensors_size());
  for (const v1::TensorSpec& tensor : message.tensors()) {
    ASSIGN_OR_RETURN(const DataType type, ParseDataType(tensor.dtype()));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Create({tensor.shape().data(),
                                                       static_cast<size_t>(tensor.shape_size())}));
    tensors.push_back(TensorSpec{tensor.name(), type, shape});
  }
  return Manifest::Create(std::move(tensors));
}

std::string EncodePipeline(const PipelineRecord& pipeline) {
  return pipeline.spec.SerializeAsString();
}

absl::StatusOr<PipelineRecord> DecodePipeline(const std::string& bytes) {
  PipelineRecord pipeline;
  if (!pipeline.spec.ParseFromString(bytes)) return absl::InternalError("bytes do not parse");
  return pipeline;
}

int64_t HeapBytesOfPipeline(const PipelineRecord& pipeline) {
  return static_cast<int64_t>(pipeline.spec.SpaceUsedLong());
}

}  // namespace

Catalog::Catalog(MetadataStore& store, uint64_t epoch)
    : meshes({"mesh", EncodeMesh, DecodeMesh, HeapBytes}, store, epoch),
      manifests({.name = "manifest",
                 .encode = EncodeManifest,
                 .decode = DecodeManifest,
                 .heap_bytes = HeapBytes,
                 .bytes_max = kManifestBytesMax},
                store, epoch),
      pipelines({"pipeline", EncodePipeline, DecodePipeline, HeapBytesOfPipeline}, store, epoch),
      network(store, epoch) {}

absl::Status Catalog::Load() {
  RETURN_IF_ERROR(meshes.Load());
  RETURN_IF_ERROR(manifests.Load());
  return pipelines.Load();
}

}  // namespace crossmesh
