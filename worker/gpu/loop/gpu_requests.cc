#include "worker/gpu/loop/gpu_requests.h"

#include "common/base/status_macros.h"
#include "common/communicators/gpu_share.h"
#include "common/wire/communicator_codec.h"
#include "worker/gpu/communicators/communicator_table.h"
#include "worker/gpu/communicators/nccl_communicator.h"
#include "worker/gpu/communicators/preflight.h"
#include "worker/gpu/communicators/registered_staging.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/loop/communicator_orders.h"
#include "worker/gpu/loop/gpu_arenas.h"
#include "worker/gpu/loop/gpu_tasks.h"
#include "worker/gpu/loop/tile_copies.h"
#include "worker/gpu/protocol/gpu_message.h"

#include <utility>

#include <absl/memory/memory.h>

namespace crossmesh {
namespace {

// Longer than what any order may take; orders have their own limits.
constexpr absl::Duration kNoLimit = absl::Hours(48);

// How a machine without GPUs looks, which is nothing that was asked for and not found.
absl::Status AsPrecondition(const absl::Status& status) {
  if (!absl::IsNotFound(status)) return status;
  return absl::FailedPreconditionError(status.message());
}

v1::GpuNotice::Answer AnswerOf(const absl::Status& status) {
  v1::GpuNotice::Answer answer;
  *answer.mutable_status() = ToProto(status);
  return answer;
}

// What the parts of the GPU call when they are done.

CommunicatorOrders::Done WithBytes(GpuRequests::Answer answer) {
  return [answer = std::move(answer)](const absl::StatusOr<int64_t>& bytes) mutable {
    v1::GpuNotice::Answer made = AnswerOf(bytes.status());
    if (bytes.ok()) made.set_communicator_bytes(*bytes);
    answer(std::move(made), UniqueFd());
  };
}

GpuTasks::Done WithResult(GpuRequests::Answer answer) {
  return [answer = std::move(answer)](absl::StatusOr<v1::GpuNotice::Answer> result) mutable {
    v1::GpuNotice::Answer made = result.ok() ? *std::move(result) : v1::GpuNotice::Answer();
    *made.mutable_status() = ToProto(result.status());
    answer(std::move(made), UniqueFd());
  };
}

TileCopies::Done WithStatus(GpuRequests::Answer answer) {
  return [answer = std::move(answer)](const absl::Status& status) mutable {
    answer(AnswerOf(status), UniqueFd());
  };
}

CommunicatorOrders::Done WithoutBytes(GpuRequests::Answer answer) {
  return [answer = std::move(answer)](const absl::StatusOr<int64_t>& bytes) mutable {
    answer(AnswerOf(bytes.status()), UniqueFd());
  };
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuRequests>> GpuRequests::Create(EventLoop& loop,
                                                                 const Clock& clock,
                                                                 Options options, Say say) {
  auto made = absl::WrapUnique(new GpuRequests(loop, clock, std::move(options), std::move(say)));
  RETURN_IF_ERROR(made->Open());
  return made;
}

GpuRequests::GpuRequests(EventLoop& loop, const Clock& clock, Options options, Say say)
    : loop_(loop), clock_(clock), options_(std::move(options)), say_(std::move(say)) {}

GpuRequests::~GpuRequests() = default;

absl::Status GpuRequests::OpenLibraries() {
  absl::StatusOr<std::unique_ptr<const DriverApi>> driver = DriverApi::Load(options_.driver);
  if (!driver.ok()) return AsPrecondition(driver.status());
  driver_ = *std::move(driver);
  absl::StatusOr<std::unique_ptr<const NcclApi>> nccl = NcclApi::Load(options_.nccl);
  if (!nccl.ok()) return AsPrecondition(nccl.status());
  nccl_ = *std::move(nccl);
  return absl::OkStatus();
}

absl::Status GpuRequests::Open() {
  RETURN_IF_ERROR(OpenLibraries());
  ASSIGN_OR_RETURN(gpu_, Gpu::Create(*driver_, UuidOf(options_.gpu)));
  ASSIGN_OR_RETURN(staging_, RegisteredStaging::Allocate(*nccl_, options_.staging_bytes.value()));
  ASSIGN_OR_RETURN(arenas_, GpuArenas::Create(*gpu_));
  communicators_ = std::make_unique<CommunicatorTable>(
      clock_, *driver_, *nccl_,
      CommunicatorTable::Options{.self = {.gpu = options_.gpu, .incarnation = options_.incarnation},
                                 .staging = staging_.get(),
                                 .timeouts = {.creating = kNoLimit,
                                              .finalizing = kNoLimit,
                                              .ending = options_.communicator_end_limit},
                                 .ctas = options_.communicator_ctas});
  const auto on_lost = [this](const CommunicatorKey& key, const absl::Status& cause) {
    v1::GpuNotice notice;
    *notice.mutable_communicator_lost()->mutable_key() = ToProto(key);
    *notice.mutable_communicator_lost()->mutable_cause() = ToProto(cause);
    say_(notice);
  };
  const auto on_change = [this](const Communicator& communicator, CommunicatorState state,
                                const absl::Status& cause) {
    // It is there by then: the first communicator comes by a request.
    tasks_->OnCommunicatorChange(communicator, state, cause);
  };
  orders_ = std::make_unique<CommunicatorOrders>(
      clock_, *communicators_,
      CommunicatorOrders::Handlers{.on_lost = on_lost, .on_change = on_change});
  ASSIGN_OR_RETURN(tasks_,
                   GpuTasks::Create({.loop = loop_,
                                     .gpu = *gpu_,
                                     .staging = *staging_,
                                     .arenas = *arenas_,
                                     .communicators = *orders_,
                                     .libraries = {driver_->description(), nccl_->description()}}));
  ASSIGN_OR_RETURN(copies_, TileCopies::Create(*gpu_, *arenas_));
  return absl::OkStatus();
}

absl::StatusOr<PreflightReport> GpuRequests::Preflight() const {
  ASSIGN_OR_RETURN(
      PreflightReport report,
      TakePreflight(*driver_, *nccl_, {.gpu = options_.gpu, .incarnation = options_.incarnation}));
  report.communicators = communicators_->MemoryByTicket();
  return report;
}

absl::StatusOr<std::string> GpuRequests::PciAddress() const { return gpu_->PciAddress(); }

void GpuRequests::CarryOut(const v1::GpuRequest& request, UniqueFd descriptor, Answer answer) {
  const auto end = [&](const absl::Status& status) { answer(AnswerOf(status), UniqueFd()); };
  switch (request.body_case()) {
    case v1::GpuRequest::kCreateArena:
      return arenas_->CreateArena(
          request.create_arena(),
          [answer = std::move(answer)](absl::StatusOr<UniqueFd> memory) mutable {
            answer(AnswerOf(memory.status()), memory.ok() ? *std::move(memory) : UniqueFd());
          });
    case v1::GpuRequest::kImportArena:
      return end(arenas_->Import(request.import_arena(), descriptor));
    case v1::GpuRequest::kReleaseArena:
      // A binding keeps the memory of its tiles, which would outlive the arena.
      tasks_->Forget(ArenaId(request.release_arena().arena()));
      return end(arenas_->Release(ArenaId(request.release_arena().arena())));
    case v1::GpuRequest::kMintCommunicatorId:
      return MintCommunicatorId(std::move(answer));
    case v1::GpuRequest::kCreateCommunicator:
      return orders_->Create(request.create_communicator(), WithBytes(std::move(answer)));
    case v1::GpuRequest::kDestroyCommunicator:
      return orders_->Destroy(request.destroy_communicator(), WithoutBytes(std::move(answer)));
    case v1::GpuRequest::kStopCommunicator:
      return orders_->Stop(request.stop_communicator(), WithoutBytes(std::move(answer)));
    case v1::GpuRequest::kRunTask:
      return tasks_->Begin(request, WithResult(std::move(answer)));
    case v1::GpuRequest::kCopyTiles:
      return copies_->Begin(request.copy_tiles(), std::move(descriptor),
                            WithStatus(std::move(answer)));
    case v1::GpuRequest::kCancelTask:
      Cancel(request.cancel_task());
      return end(absl::OkStatus());
    case v1::GpuRequest::kPing:
      return end(absl::OkStatus());
    case v1::GpuRequest::kTakePreflight:
      return AnswerPreflight(std::move(answer));
    case v1::GpuRequest::BODY_NOT_SET:
      break;
  }
  end(Malformed("body", "a request", "none that is known"));
}

void GpuRequests::MintCommunicatorId(Answer answer) {
  const absl::StatusOr<std::string> minted = MintId(*nccl_);
  v1::GpuNotice::Answer with_id = AnswerOf(minted.status());
  if (minted.ok()) with_id.set_communicator_id(*minted);
  answer(std::move(with_id), UniqueFd());
}

void GpuRequests::AnswerPreflight(Answer answer) const {
  const absl::StatusOr<PreflightReport> preflight = Preflight();
  v1::GpuNotice::Answer with_preflight = AnswerOf(preflight.status());
  if (preflight.ok()) *with_preflight.mutable_preflight() = ToProto(*preflight);
  answer(std::move(with_preflight), UniqueFd());
}

void GpuRequests::Cancel(const v1::GpuRequest::CancelTask& request) {
  const TaskKey key = FromProto(request.key());
  const absl::Status cause = CauseFromProto(request.cause());
  // A worker knows its task; whether it runs or is copied here only these do.
  tasks_->Cancel(key, cause);
  copies_->Cancel(key, cause);
}

absl::Status GpuRequests::Poll() {
  orders_->Poll();
  RETURN_IF_ERROR(arenas_->Poll());
  RETURN_IF_ERROR(copies_->Poll());
  return health();
}

std::vector<v1::GpuNotice> GpuRequests::Progress() const { return tasks_->Progress(); }

bool GpuRequests::is_busy() const {
  return orders_->is_busy() || arenas_->is_filling() || !copies_->is_empty();
}

bool GpuRequests::is_idle() const {
  return !is_busy() && orders_->is_empty() && tasks_->is_empty();
}

bool GpuRequests::is_moving() const { return !tasks_->is_empty() || !copies_->is_empty(); }

bool GpuRequests::is_filling() const { return arenas_->is_filling(); }

absl::Status GpuRequests::health() const {
  RETURN_IF_ERROR(orders_->health());
  RETURN_IF_ERROR(gpu_->health());
  return tasks_->health();
}

}  // namespace crossmesh
