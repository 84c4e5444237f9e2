#pragma once

#include "common/mesh/manifest.h"
#include "common/mesh/mesh.h"
#include "controller/catalog/network_record.h"
#include "controller/catalog/record_table.h"
#include "controller/store/metadata_store.h"
#include "crossmesh/v1/pipeline.pb.h"

#include <cstdint>

#include <absl/status/status.h>

namespace crossmesh {

// A pipeline as it was registered: named meshes are looked up when it is planned. Immutable.
struct PipelineRecord {
  v1::PipelineSpec spec;

  friend bool operator==(const PipelineRecord& a, const PipelineRecord& b) {
    return a.spec.SerializeAsString() == b.spec.SerializeAsString();
  }
};

// What clients register by name, and the network. Thread-safe.
struct Catalog {
  // Of the largest ones, ten and more.
  static constexpr int64_t kManifestBytesMax = int64_t{4} << 30;

  // `store` must outlive the catalog; `epoch` is the controller's fencing number.
  Catalog(MetadataStore& store, uint64_t epoch);

  // Reads what former controllers have left, before anything else is asked. The store's errors.
  absl::Status Load();

  RecordTable<Mesh> meshes;
  RecordTable<Manifest> manifests;
  RecordTable<PipelineRecord> pipelines;
  NetworkRecord network;
};

}  // namespace crossmesh
