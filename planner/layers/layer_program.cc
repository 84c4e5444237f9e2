#include "planner/layers/layer_program.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using Transfer = LayerProgram::Transfer;

template <typename... Parts>
absl::Status Unsound(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("layer program: ", parts...));
}

absl::Status CheckOps(const LayerProgram& program) {
  std::set<std::pair<RankIndex, absl::string_view>> names;
  for (const LayerProgram::Op& op : program.ops) {
    if (op.rank < 0 || op.rank >= std::ssize(program.ranks)) {
      return Unsound("op ", op.name, ": expected a rank below ", program.ranks.size(), ", found ",
                     op.rank);
    }
    if (op.name.empty() || !names.emplace(op.rank, op.name).second) {
      return Unsound("rank ", op.rank, ": expected ops with names of their own, found \"", op.name,
                     op.name.empty() ? "\"" : "\" twice");
    }
    if (!std::isfinite(op.seconds) || op.seconds < 0) {
      return Unsound("op ", op.name, ": expected a time of 0 s or more, found ", op.seconds);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMessages(const LayerProgram& program, const Transfer& transfer) {
  for (size_t index = 0; index < transfer.messages.size(); ++index) {
    const LayerProgram::Message& message = transfer.messages[index];
    for (const int32_t op : {message.producer, message.consumer}) {
      if (op < 0 || op >= std::ssize(program.ops)) {
        return Unsound("message ", index, " of transfer ", transfer.name, ": expected ops below ",
                       program.ops.size(), ", found ", op);
      }
    }
    if (index == 0) continue;
    const LayerProgram::Message& before = transfer.messages[index - 1];
    if (message.producer <= before.producer || message.consumer <= before.consumer ||
        program.ops[message.producer].rank != program.from(transfer) ||
        program.ops[message.consumer].rank != program.to(transfer)) {
      return Unsound("message ", index, " of transfer ", transfer.name,
                     ": expected it between the ranks of the first one and in the order of the "
                     "ops, found ",
                     program.ops[message.producer].name, " > ", program.ops[message.consumer].name);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPartial(const LayerProgram& program, const Transfer& transfer) {
  if (transfer.partial.empty()) return absl::OkStatus();
  if (program.from(transfer) != program.to(transfer)) {
    return Unsound("transfer ", transfer.name, ": expected summands inside one rank, found ranks ",
                   program.from(transfer), " and ", program.to(transfer));
  }
  const Mesh& mesh = *program.ranks[program.from(transfer)].mesh;
  for (const std::string& axis : transfer.partial) {
    if (std::ranges::none_of(mesh.axes(), [&](const Axis& of) { return of.name == axis; })) {
      return Unsound("transfer ", transfer.name, ": expected summands over an axis of the mesh, ",
                     "found ", axis);
    }
  }
  for (const LayerProgram::Tensor& tensor : transfer.tensors) {
    const AxisLayout* const source = tensor.source.axes();
    for (const std::string& axis : transfer.partial) {
      if (source == nullptr || std::ranges::any_of(source->dimensions, [&](const auto& cut) {
            return std::ranges::find(cut, axis) != cut.end();
          })) {
        return Unsound("transfer ", transfer.name, ", tensor ", tensor.tensor.name,
                       ": expected a source that axis ", axis,
                       " does not cut, since its slots have summands, found one that it does");
      }
    }
    RETURN_IF_ERROR(At(absl::StrCat("transfer ", transfer.name, ", tensor ", tensor.tensor.name),
                       CheckReduction(tensor.tensor.type, {.kind = transfer.reduction})));
  }
  return absl::OkStatus();
}

absl::Status CheckTransfer(const LayerProgram& program, const Transfer& transfer) {
  if (transfer.tensors.empty() || transfer.messages.empty() || transfer.buffers < 1) {
    return Unsound("transfer ", transfer.name, ": expected tensors, messages and buffers, found ",
                   transfer.tensors.size(), ", ", transfer.messages.size(), " and ",
                   transfer.buffers);
  }
  RETURN_IF_ERROR(CheckMessages(program, transfer));
  for (const LayerProgram::Tensor& tensor : transfer.tensors) {
    const auto place = absl::StrCat("transfer ", transfer.name, ", tensor ", tensor.tensor.name);
    RETURN_IF_ERROR(At(place, tensor.source.Validate(*program.ranks[program.from(transfer)].mesh,
                                                     tensor.tensor.shape)));
    RETURN_IF_ERROR(At(place, tensor.destination.Validate(*program.ranks[program.to(transfer)].mesh,
                                                          tensor.tensor.shape)));
  }
  return CheckPartial(program, transfer);
}

// Takes away, again and again, the ops that nothing that is left has to come before.
absl::Status CheckOrder(const LayerProgram& program) {
  std::vector<std::vector<int32_t>> after(program.ops.size());
  std::vector<int32_t> waits(program.ops.size());
  std::vector<int32_t> last(program.ranks.size(), -1);
  const auto add = [&](int32_t first, int32_t second) {
    after[first].push_back(second);
    ++waits[second];
  };
  for (int32_t op = 0; op < std::ssize(program.ops); ++op) {
    int32_t& before = last[program.ops[op].rank];
    if (before >= 0) add(before, op);
    before = op;
  }
  for (const Transfer& transfer : program.transfers) {
    for (int32_t index = 0; index < std::ssize(transfer.messages); ++index) {
      add(transfer.messages[index].producer, transfer.messages[index].consumer);
      // The op that fills a buffer waits for the one that needs what lay there before.
      if (index < transfer.buffers) continue;
      add(transfer.messages[index - transfer.buffers].consumer, transfer.messages[index].producer);
    }
  }
  std::deque<int32_t> free;
  for (int32_t op = 0; op < std::ssize(waits); ++op) {
    if (waits[op] == 0) free.push_back(op);
  }
  size_t taken = 0;
  for (; !free.empty(); ++taken) {
    for (const int32_t next : after[free.front()]) {
      if (--waits[next] == 0) free.push_back(next);
    }
    free.pop_front();
  }
  if (taken == program.ops.size()) return absl::OkStatus();
  const auto stuck = std::ranges::find_if(waits, [](int32_t left) { return left > 0; });
  return Unsound("expected ops that can be done in their order, found that op ",
                 program.ops[stuck - waits.begin()].name, " waits for itself, as ",
                 program.ops.size() - taken, " ops do");
}

}  // namespace

absl::Status Validate(const LayerProgram& program) {
  if (program.ranks.empty() || program.ops.empty()) {
    return Unsound("expected ranks and ops, found ", program.ranks.size(), " and ",
                   program.ops.size());
  }
  RETURN_IF_ERROR(CheckOps(program));
  std::set<absl::string_view> names;
  for (const Transfer& transfer : program.transfers) {
    if (transfer.name.empty() || !names.insert(transfer.name).second) {
      return Unsound("expected transfers with names of their own, found \"", transfer.name,
                     transfer.name.empty() ? "\"" : "\" twice");
    }
    RETURN_IF_ERROR(CheckTransfer(program, transfer));
  }
  return CheckOrder(program);
}

}  // namespace crossmesh
