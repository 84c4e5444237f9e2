#include "tests/live/chain_pipeline.h"

#include <cstddef>
#include <cstdint>

#include <absl/strings/str_cat.h>

namespace crossmesh {

v1::PipelineSpec ChainPipeline(const std::vector<std::string>& hosts, double seconds) {
  v1::PipelineSpec spec;
  spec.set_name("chain");
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    v1::Mesh& mesh = *spec.add_ranks()->mutable_inline_mesh();
    mesh.set_axes("x=1");
    mesh.set_devices(absl::StrCat(hosts[rank], ".0"));
    v1::PipelineStage& stage = *spec.add_stages();
    stage.set_rank(static_cast<int32_t>(rank));
    stage.set_forward_seconds(seconds);
    stage.set_input_gradient_seconds(seconds);
    stage.set_weight_gradient_seconds(seconds);
    v1::Host& host = *spec.mutable_topology()->add_hosts();
    host.set_name(hosts[rank]);
    v1::Nic& nic = *host.add_nics();
    nic.set_name("eth0");
    nic.set_out_bytes_per_second(1'250'000'000);
    nic.set_in_bytes_per_second(1'250'000'000);
  }
  const auto add_edge = [&spec](int32_t from, int32_t to) {
    v1::PipelineEdge& edge = *spec.add_edges();
    edge.set_from(from);
    edge.set_to(to);
    v1::PipelineTensor& tensor = *edge.add_tensors();
    tensor.mutable_tensor()->set_name(absl::StrCat("from_", from));
    tensor.mutable_tensor()->set_dtype("F32");
    tensor.mutable_tensor()->add_shape(2);
    tensor.mutable_tensor()->add_shape(128 << 10);
    tensor.set_batch_dimension(0);
    tensor.set_source_layout("[-, x]");
    tensor.set_destination_layout("[-, x]");
  };
  const int32_t last = static_cast<int32_t>(hosts.size()) - 1;
  for (int32_t stage = 0; stage < last; ++stage) add_edge(stage, stage + 1);
  if (last > 1) add_edge(0, last);
  v1::PipelineMicrobatches& many = *spec.add_microbatches();
  many.set_count(7);
  many.set_samples(2);
  v1::PipelineMicrobatches& uneven = *spec.add_microbatches();
  uneven.set_count(1);
  uneven.set_samples(1);
  return spec;
}

}  // namespace crossmesh
