#include "tests/simulation/simulated_programs.h"

#include "common/base/check.h"
#include "worker/memory/arena.h"
#include "worker/memory/memory_budget.h"
#include "worker/pipeline/served_program.h"
#include "worker/tasks/task_table.h"

#include <cstring>
#include <iterator>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

// All elements of a message.
uint32_t ElementOf(const PipelineTensor& tensor, const PipelineOp& op) {
  uint32_t hash = 2166136261;
  for (const char byte :
       absl::StrCat(tensor.name, " ", tensor.transfer, " ", op.iteration, " ", op.op.microbatch)) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 16777619;
  }
  return hash;
}

void Fill(const PipelineOp& op) {
  for (const PipelineTensor& tensor : op.outputs) {
    const uint32_t element = ElementOf(tensor, op);
    for (const PipelineTensor::Tile& tile : tensor.tiles) {
      for (size_t i = 0; i < tile.bytes.size(); i += sizeof(element)) {
        std::memcpy(tile.bytes.data() + i, &element, sizeof(element));
      }
    }
  }
}

bool HasWhatWasSent(const PipelineOp& op) {
  for (const PipelineTensor& tensor : op.inputs) {
    const uint32_t element = ElementOf(tensor, op);
    for (const PipelineTensor::Tile& tile : tensor.tiles) {
      for (size_t i = 0; i < tile.bytes.size(); i += sizeof(element)) {
        if (std::memcmp(tile.bytes.data() + i, &element, sizeof(element)) != 0) return false;
      }
    }
  }
  return true;
}

}  // namespace

SimulatedPrograms::SimulatedPrograms(const Ports& ports, std::vector<DeviceId> devices)
    : ports_(ports),
      host_({.worker = ports.node.name(),
             .incarnation = static_cast<uint64_t>(ports.node.life()),
             .devices = std::move(devices),
             .computes = true},
            {.control = ports.control,
             .data = ports.data,
             .replayer = ports.replayer,
             .clock = ports.node.clock(),
             .memory = ports.memory,
             .obey = [&tasks = ports.tasks](uint64_t epoch) { return tasks.Obey(epoch); },
             .make_arena = [&memory = ports.memory](
                               const DeviceId& /*device*/,
                               ByteCount bytes) { return memory.MakeArena("pipeline", bytes); }}) {}

SimulatedPrograms::~SimulatedPrograms() = default;

std::shared_ptr<ServedProgram> SimulatedPrograms::Accept(
    const std::shared_ptr<SimulatedStream>& stream,
    const std::shared_ptr<SimulatedCallClient<v1::RunProgramResponse>>& client) {
  auto call = std::make_shared<ServedProgram>(
      host_, std::make_shared<SimulatedCaller<v1::RunProgramResponse>>(stream, client));
  stream->Hear(1, [call](const absl::Status& /*status*/) { call->OnGone(); });
  return call;
}

bool SimulatedPrograms::Compute() {
  bool has_done_something = false;
  while (std::unique_ptr<PipelineLoop> loop = host_.TakeLoop()) {
    auto computing = std::make_shared<Computing>();
    computing->loop = std::move(loop);
    computing->computer = {.worker = ports_.node.name(), .life = ports_.node.life()};
    computing_.push_back(std::move(computing));
  }
  for (const std::shared_ptr<Computing>& computing : computing_) {
    while (TakeStep(computing)) has_done_something = true;
  }
  std::erase_if(computing_, [](const auto& computing) { return computing->is_over; });
  return has_done_something;
}

bool SimulatedPrograms::TakeStep(const std::shared_ptr<Computing>& computing) {
  Computing& at = *computing;
  if (at.is_busy || at.is_over || !at.loop->WaitForNext(absl::ZeroDuration())) return false;
  const PipelineStep step = at.loop->Next();
  switch (step.kind) {
    case PipelineStep::Kind::kOp:
      Begin(computing, *step.op);
      break;
    case PipelineStep::Kind::kPair:
      CHECK(false) << "the schedule has no pairs";
      break;
    case PipelineStep::Kind::kComplete:
      at.complete = step.iteration;
      if (!at.computer.run.empty()) ports_.history.OnComplete(at.computer, step.iteration);
      break;
    case PipelineStep::Kind::kStateLost:
      knows_loss_ = true;
      at.loop->Done();
      break;
    case PipelineStep::Kind::kOver:
      at.is_over = true;
      break;
  }
  return true;
}

void SimulatedPrograms::Begin(const std::shared_ptr<Computing>& computing, const PipelineOp& op) {
  SimulatedRunHistory::Computer& computer = computing->computer;
  if (computer.run.empty()) {
    // The tensor has the name of the run.
    computer.run = (op.outputs.empty() ? op.inputs : op.outputs).front().name;
    computer.program = ports_.history.NewProgram();
    if (computing->complete.has_value()) ports_.history.OnComplete(computer, *computing->complete);
  }
  computer.knows_loss = knows_loss_;
  ports_.history.OnOp(computer, op.iteration);
  if (!HasWhatWasSent(op)) ports_.history.OnWrongInput(computer, op.iteration);
  computing->is_busy = true;
  const auto ends = [this, weak = std::weak_ptr<Computing>(computing), &op] {
    const std::shared_ptr<Computing> at = weak.lock();
    if (at == nullptr) return;
    ports_.node.world().Log(ports_.node.name(), "has computed", op.name);
    Fill(op);
    ports_.history.OnOpDone(at->computer, op.iteration, std::ssize(at->loop->ops()));
    at->is_busy = false;
    at->loop->Done();
  };
  ports_.node.After(absl::Seconds(op.seconds), ends);
}

}  // namespace crossmesh
