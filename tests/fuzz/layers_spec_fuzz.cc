// The text of a layer program decoded as the controller does: what is accepted is valid, and within
// its limits.

#include "common/base/check.h"
#include "planner/layers/layer_program_codec.h"
#include "planner/layers/planned_layers.h"
#include "tests/fuzz/fuzz_input.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/util/json_util.h>

namespace crossmesh {

void FuzzOne(const uint8_t* data, size_t size) {
  static const google::protobuf::LogSilencer quiet;
  v1::LayerProgramSpec spec;
  const std::string text(TextOf(data, size));
  if (!google::protobuf::util::JsonStringToMessage(text, &spec).ok()) return;
  const absl::StatusOr<DescribedLayers> layers =
      FromProto(spec, std::vector<std::shared_ptr<const Mesh>>(spec.ranks_size()));
  if (!layers.ok()) return;
  CHECK_OK(Validate(layers->program));
  CHECK(std::ssize(layers->program.transfers) <= PlannedLayers::kTransfersMax);
  for (const LayerProgram::Transfer& transfer : layers->program.transfers) {
    CHECK(transfer.buffers >= 1 && transfer.buffers <= DescribedLayers::kBuffersMax);
  }
  // What is accepted can be run, however odd its order: nothing waits for ever.
  const std::vector<double> seconds(layers->program.transfers.size(), 1);
  const LayerTimeline run = SimulateLayers(
      layers->program, {.seconds = seconds,
                        .ports = TransferPorts(
                            std::vector<absl::InlinedVector<PortIndex, 2>>(seconds.size(), {0}))});
  CHECK(run.seconds >= 1);
}

}  // namespace crossmesh
