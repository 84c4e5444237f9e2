#pragma once

#include "planner/layers/layer_program.h"
#include "planner/pipeline/op.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <absl/strings/string_view.h>

namespace crossmesh {

// Puts a layer program together, op by op, rank after rank. What gives messages of a transfer, and
// what needs them, are added each in their order; the k-th of the ones belongs to the k-th of the
// others.
class ProgramWriter {
 public:
  explicit ProgramWriter(std::vector<LayerProgram::Rank> ranks);

  // Ops of a rank in their order.
  void AddOp(LayerProgram::Op op);
  // Of the last op that was added. `transfer` without messages; one of that name is added once.
  void Give(const LayerProgram::Transfer& transfer);
  void Need(absl::string_view transfer);
  // Does any op give messages of it so far?
  bool Has(absl::string_view transfer) const;

  // With as many that need messages of a transfer as give them, or CHECKs. No transfer has more
  // buffers than messages.
  LayerProgram Finish() &&;

 private:
  struct Ends {
    LayerProgram::Transfer transfer;
    std::vector<int32_t> producers;
    std::vector<int32_t> consumers;
  };

  LayerProgram program_;
  std::vector<std::string> order_;  // of transfers, as they were first given
  std::map<std::string, Ends, std::less<>> ends_;
};

}  // namespace crossmesh
