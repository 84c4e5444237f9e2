#pragma once

#include "common/mesh/manifest.h"
#include "common/mesh/mesh.h"
#include "controller/catalog/network_record.h"
#include "controller/catalog/pipeline_record.h"
#include "controller/catalog/record_table.h"
#include "controller/store/metadata_store.h"

#include <cstdint>

namespace crossmesh {

// What clients register by name, and the network. Thread-safe.
struct Catalog {
  // `store` must outlive the catalog; `epoch` is the controller's fencing number.
  Catalog(MetadataStore& store, uint64_t epoch);

  RecordTable<Mesh> meshes;
  RecordTable<Manifest> manifests;
  RecordTable<PipelineRecord> pipelines;
  NetworkRecord network;
};

}  // namespace crossmesh
