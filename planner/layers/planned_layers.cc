#include "planner/layers/planned_layers.h"

#include "common/base/digest_builder.h"
#include "common/base/error_place.h"
#include "common/base/format.h"
#include "common/base/status_macros.h"
#include "common/plan/course.h"
#include "common/plan/course_tables.h"
#include "planner/layers/layer_transfer_planner.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <absl/container/flat_hash_map.h>
#include <absl/container/inlined_vector.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using Transfer = LayerProgram::Transfer;

absl::Status CheckSizes(const LayerProgram& program) {
  int64_t messages = 0;
  for (const Transfer& transfer : program.transfers) messages += std::ssize(transfer.messages);
  if (std::ssize(program.transfers) <= PlannedLayers::kTransfersMax &&
      messages <= PlannedLayers::kMessagesMax) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat("layer program: expected at most ",
                                                   PlannedLayers::kTransfersMax, " transfers and ",
                                                   PlannedLayers::kMessagesMax, " messages, found ",
                                                   program.transfers.size(), " and ", messages));
}

absl::Status PlanTransfers(const Topology& topology, CancelCheck cancelled,
                           PlannedLayers& planned) {
  LayerTransferPlanner planner(planned.program, topology, cancelled);
  for (const Transfer& transfer : planned.program.transfers) {
    PlannedLayers::Transfer& out = planned.transfers.emplace_back();
    ASSIGN_OR_RETURN(out.plan,
                     At(absl::StrCat("transfer ", transfer.name), planner.PlanOf(transfer)));
    out.ports = PortsOf(*out.plan, topology);
    out.inside = MovedInsideHosts(*out.plan, topology);
  }
  return absl::OkStatus();
}

// What a message takes on the devices of its plan.
struct MessageBytes {
  int64_t source = 0;
  int64_t destination = 0;  // with what lies between steps
};

std::map<DeviceId, MessageBytes> BytesByDevice(const Plan& plan) {
  std::map<DeviceId, MessageBytes> bytes;
  for (DeviceRank d = 0; d < std::ssize(plan.tensors().devices()); ++d) {
    const DeviceId& device = plan.tensors().devices()[d];
    MessageBytes& of_device = bytes[device];
    of_device.source = plan.tensors().BytesOf(Side::kSource, d);
    of_device.destination = plan.tensors().BytesOf(Side::kDestination, d);
    if (!plan.has_courses()) continue;
    for (const Course<Plan>& course : plan.courses()) {
      of_device.destination += CourseMemory(CourseTables(course), device).bytes();
    }
  }
  return bytes;
}

// More than any device has stays that.
void AddBuffers(int64_t buffers, int64_t bytes, int64_t& taken) {
  constexpr int64_t kMost = int64_t{1} << 62;
  taken = bytes > (kMost - taken) / buffers ? kMost : taken + buffers * bytes;
}

void AddMemory(PlannedLayers& planned) {
  const LayerProgram& program = planned.program;
  std::vector<std::map<DeviceId, int64_t>> taken(program.ranks.size());
  std::map<const Plan*, std::map<DeviceId, MessageBytes>> known;
  for (size_t t = 0; t < program.transfers.size(); ++t) {
    const Transfer& transfer = program.transfers[t];
    auto [entry, is_new] = known.try_emplace(planned.transfers[t].plan.get());
    if (is_new) entry->second = BytesByDevice(*entry->first);
    for (const auto& [device, bytes] : entry->second) {
      if (bytes.source > 0) {
        AddBuffers(transfer.buffers, bytes.source, taken[program.from(transfer)][device]);
      }
      if (bytes.destination > 0) {
        AddBuffers(transfer.buffers, bytes.destination, taken[program.to(transfer)][device]);
      }
    }
  }
  for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
    PlannedLayers::RankBytes& most = planned.memory.emplace_back();
    most.device = program.ranks[rank].mesh->devices().front();
    for (const auto& [device, bytes] : taken[rank]) {
      if (ByteCount(bytes) > most.bytes) most = {device, ByteCount(bytes)};
    }
  }
}

absl::Status CheckMemory(const PlannedLayers& planned) {
  for (size_t rank = 0; rank < planned.memory.size(); ++rank) {
    const std::optional<ByteCount>& most = planned.program.ranks[rank].device_bytes_max;
    const auto& [device, bytes] = planned.memory[rank];
    if (!most || bytes <= *most) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        "rank ", rank, ": expected memory for its messages, of which device ", ToString(device),
        " has ", FormatBytes(bytes), " (", bytes.value(), " bytes), found a limit of ",
        FormatBytes(*most), " (", most->value(), " bytes)"));
  }
  return absl::OkStatus();
}

// A device that receives inside of its host is a port of its own.
TransferCosts CostsOf(const PlannedLayers& planned) {
  absl::flat_hash_map<std::string, std::vector<int32_t>> sharing;  // transfers, by port
  std::vector<double> seconds;
  for (int32_t t = 0; t < std::ssize(planned.transfers); ++t) {
    const PlannedLayers::Transfer& transfer = planned.transfers[t];
    seconds.push_back(transfer.seconds());
    for (const PortBytes& port : transfer.ports) sharing[port.port].push_back(t);
    for (const DeviceId& device : transfer.inside.devices) {
      sharing[absl::StrCat("device ", ToString(device))].push_back(t);
    }
  }
  // Of ports with the same transfers one is enough.
  std::set<std::vector<int32_t>> distinct;
  for (const auto& [port, transfers] : sharing) distinct.insert(transfers);
  std::vector<absl::InlinedVector<PortIndex, 2>> ports(planned.transfers.size());
  PortIndex index = 0;
  for (const std::vector<int32_t>& transfers : distinct) {
    for (const int32_t transfer : transfers) ports[transfer].push_back(index);
    ++index;
  }
  return {.seconds = std::move(seconds), .ports = TransferPorts(std::move(ports))};
}

Digest IdOf(const PlannedLayers& planned) {
  DigestBuilder builder;
  builder.AddText("crossmesh layer plan 1");
  builder.AddInt(std::ssize(planned.program.ranks));
  for (const LayerProgram::Rank& rank : planned.program.ranks) {
    builder.AddText(ToString(*rank.mesh));
  }
  builder.AddInt(std::ssize(planned.program.ops));
  for (const LayerProgram::Op& op : planned.program.ops) {
    builder.AddText(op.name);
    builder.AddInt(op.rank);
  }
  builder.AddInt(std::ssize(planned.program.transfers));
  for (size_t t = 0; t < planned.transfers.size(); ++t) {
    const Transfer& transfer = planned.program.transfers[t];
    builder.AddText(transfer.name);
    builder.AddInts(transfer.buffers, transfer.messages.size(), transfer.tensors.size());
    for (const auto& [producer, consumer] : transfer.messages) {
      builder.AddInts(producer, consumer);
    }
    for (const LayerProgram::Tensor& tensor : transfer.tensors) {
      builder.AddText(tensor.tensor.name);
    }
    builder.AddDigest(planned.transfers[t].plan->id());
  }
  return builder.Finish();
}

// Memory and run of a program whose transfers are planned.
absl::StatusOr<std::shared_ptr<const PlannedLayers>> Predicted(
    std::shared_ptr<PlannedLayers> planned) {
  AddMemory(*planned);
  RETURN_IF_ERROR(CheckMemory(*planned));
  planned->run = SimulateLayers(planned->program, CostsOf(*planned));
  planned->id = IdOf(*planned);
  return planned;
}

// Is a transfer's plan that of another program's transfer in its place?
bool IsMovedAlike(const LayerProgram& program, const LayerProgram& other, size_t transfer) {
  const Transfer& of = program.transfers[transfer];
  const Transfer& as = other.transfers[transfer];
  return of.name == as.name && of.tensors == as.tensors && of.partial == as.partial &&
         of.reduction == as.reduction &&
         *program.ranks[program.from(of)].mesh == *other.ranks[other.from(as)].mesh &&
         *program.ranks[program.to(of)].mesh == *other.ranks[other.to(as)].mesh;
}

}  // namespace

int64_t PlannedLayers::plans() const {
  std::set<const Plan*> different;
  for (const Transfer& transfer : transfers) different.insert(transfer.plan.get());
  return std::ssize(different);
}

absl::StatusOr<std::shared_ptr<const PlannedLayers>> PlanLayers(LayerProgram program,
                                                                const Topology& topology,
                                                                CancelCheck cancelled) {
  RETURN_IF_ERROR(Validate(program));
  RETURN_IF_ERROR(CheckSizes(program));
  auto planned = std::make_shared<PlannedLayers>();
  planned->program = std::move(program);
  RETURN_IF_ERROR(PlanTransfers(topology, cancelled, *planned));
  return Predicted(std::move(planned));
}

absl::StatusOr<std::shared_ptr<const PlannedLayers>> PlanLayersAs(const PlannedLayers& planned,
                                                                  LayerProgram program) {
  RETURN_IF_ERROR(Validate(program));
  RETURN_IF_ERROR(CheckSizes(program));
  const LayerProgram& as = planned.program;
  if (program.transfers.size() != as.transfers.size()) {
    return absl::InvalidArgumentError(absl::StrCat("layer program: expected ", as.transfers.size(),
                                                   " transfers that are planned, found ",
                                                   program.transfers.size()));
  }
  for (size_t t = 0; t < as.transfers.size(); ++t) {
    if (IsMovedAlike(program, as, t)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("layer program: expected transfer ", as.transfers[t].name,
                     " as it is planned, found ", program.transfers[t].name, " that differs"));
  }
  auto other = std::make_shared<PlannedLayers>();
  other->program = std::move(program);
  other->transfers = planned.transfers;
  return Predicted(std::move(other));
}

}  // namespace crossmesh
