// Files that describe manifests and networks: what is read goes over the wire and comes back.

#include "common/base/check.h"
#include "common/mesh/manifest_file.h"
#include "common/mesh/topology_file.h"
#include "common/wire/tensor_codec.h"
#include "tests/fuzz/fuzz_input.h"

namespace crossmesh {

void FuzzOne(const uint8_t* data, size_t size) {
  const absl::string_view text = TextOf(data, size);
  if (const auto file = ParseManifestFile(text); file.ok()) {
    const auto again = FromProto(ToProto(file->manifest));
    CHECK_OK(again);
    CHECK(*again == file->manifest);
    CHECK(again->digest() == file->manifest.digest());
  }
  if (const auto topology = ParseTopologyFile(text); topology.ok()) {
    const auto again = FromProto(ToProto(*topology));
    CHECK_OK(again);
    CHECK(*again == *topology);
    const auto written = ParseTopologyFile(ToTopologyFile(*topology));
    CHECK_OK(written);
    CHECK(*written == *topology);
  }
}

}  // namespace crossmesh
