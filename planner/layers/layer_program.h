#pragma once

#include "common/base/byte_count.h"
#include "common/mesh/layout.h"
#include "common/mesh/manifest.h"
#include "common/mesh/mesh.h"
#include "common/mesh/reduction.h"
#include "planner/pipeline/op.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What ranks compute and exchange in an iteration, op by op: the products of a training's layers,
// and the collectives between them. Every rank does its ops in their order, and every device of a
// rank does the same ones. A message moves from the end of the op that gives it to the op that
// needs it, beside whatever is computed meanwhile: so the order of ops, and for how many messages
// there is memory, say what overlaps. An op that only gives, or only needs, a message takes no
// time.
struct LayerProgram {
  struct Rank {
    std::shared_ptr<const Mesh> mesh;
    // The most that messages may take on any of its devices; nothing: no limit.
    std::optional<ByteCount> device_bytes_max = std::nullopt;
  };
  struct Op {
    std::string name;  // of its own on its rank, e.g. "m0.layer3.qkv.forward"
    RankIndex rank = 0;
    double seconds = 0;
    std::string layer = {};  // e.g. "layer3", by which predictions are summed up; empty: none's
  };
  struct Tensor {
    TensorSpec tensor;
    Layout source;       // over the mesh of the rank that gives it
    Layout destination;  // over the mesh of the rank that needs it
    friend bool operator==(const Tensor&, const Tensor&) = default;
  };
  struct Message {
    int32_t producer = 0;  // index into `ops`
    int32_t consumer = 0;
    friend bool operator==(const Message&, const Message&) = default;
  };
  // The same tensors, from the same layouts to the same layouts, once for each message.
  struct Transfer {
    std::string name;  // of its own, e.g. "qkv.sum"
    std::vector<Tensor> tensors;
    // Axes of the producer's mesh over which slots hold summands of each tensor; none: tensors are
    // only moved. Then both ranks are one.
    std::vector<std::string> partial;
    ReductionKind reduction = ReductionKind::kSum;
    int32_t buffers = 1;  // messages for which either end has memory; message k is in k modulo it
    std::vector<Message> messages;
  };

  std::string name = {};  // for people
  std::vector<Rank> ranks = {};
  std::vector<Op> ops = {};
  std::vector<Transfer> transfers = {};

  // Of the ops of its first message.
  RankIndex from(const Transfer& transfer) const {
    return ops[transfer.messages.front().producer].rank;
  }
  RankIndex to(const Transfer& transfer) const {
    return ops[transfer.messages.front().consumer].rank;
  }
};

// InvalidArgument, naming the op, transfer or tensor, what was expected and what was found: ranks
// or ops that there are none of; names that are empty or there twice; times that are
// negative or not finite; a transfer without tensors, messages or buffers, whose messages have
// other ranks than the first one, or that are not in the order of the ops at both ends; a layout
// that does not fit; partial sums between two ranks, over axes that the mesh does not have or that
// cut the tensor, or of a type that cannot be reduced; an op that waits for itself. Cost: linear.
absl::Status Validate(const LayerProgram& program);

}  // namespace crossmesh
