#include "planner/parallelism/programs/program_writer.h"

#include "common/base/check.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace crossmesh {

ProgramWriter::ProgramWriter(std::vector<LayerProgram::Rank> ranks) {
  program_.ranks = std::move(ranks);
}

void ProgramWriter::AddOp(LayerProgram::Op op) { program_.ops.push_back(std::move(op)); }

void ProgramWriter::Give(const LayerProgram::Transfer& transfer) {
  const auto [found, added] = ends_.try_emplace(transfer.name);
  Ends& ends = found->second;
  if (ends.producers.empty()) {
    ends.transfer = transfer;
    order_.push_back(transfer.name);
  }
  ends.producers.push_back(static_cast<int32_t>(program_.ops.size()) - 1);
}

void ProgramWriter::Need(absl::string_view transfer) {
  ends_[std::string(transfer)].consumers.push_back(static_cast<int32_t>(program_.ops.size()) - 1);
}

bool ProgramWriter::Has(absl::string_view transfer) const {
  const auto found = ends_.find(transfer);
  return found != ends_.end() && !found->second.producers.empty();
}

LayerProgram ProgramWriter::Finish() && {
  CHECK(order_.size() == ends_.size()) << "a transfer is needed that no op gives";
  for (const std::string& name : order_) {
    Ends& ends = ends_.find(name)->second;
    CHECK(ends.producers.size() == ends.consumers.size())
        << name << ": " << ends.producers.size() << " given, " << ends.consumers.size()
        << " needed";
    for (size_t message = 0; message < ends.producers.size(); ++message) {
      ends.transfer.messages.push_back({ends.producers[message], ends.consumers[message]});
    }
    // Memory for more messages than there are would never be used.
    const auto messages = static_cast<int32_t>(ends.transfer.messages.size());
    ends.transfer.buffers = std::min(ends.transfer.buffers, messages);
    program_.transfers.push_back(std::move(ends.transfer));
  }
  return std::move(program_);
}

}  // namespace crossmesh
