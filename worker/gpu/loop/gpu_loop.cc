#include "worker/gpu/loop/gpu_loop.h"

#include "common/base/status_macros.h"
#include "common/communicators/gpu_share.h"
#include "common/wire/communicator_codec.h"
#include "worker/gpu/communicators/communicator_table.h"
#include "worker/gpu/communicators/m2n_runtime.h"
#include "worker/gpu/communicators/preflight.h"
#include "worker/gpu/communicators/registered_staging.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/loop/communicator_orders.h"
#include "worker/gpu/loop/gpu_arenas.h"
#include "worker/gpu/loop/gpu_measurement.h"
#include "worker/gpu/loop/gpu_tasks.h"
#include "worker/gpu/loop/tile_copies.h"
#include "worker/gpu/protocol/gpu_message.h"
#include "worker/gpu/protocol/gpu_protocol.h"

#include <utility>

#include <absl/memory/memory.h>

namespace crossmesh {
namespace {

// Longer than what any order may take; orders have their own limits.
constexpr absl::Duration kNoLimit = absl::Hours(48);
// Between two looks, while a request waits for what they find.
constexpr absl::Duration kBusyLook = absl::Milliseconds(1);
// While communicators or tasks are there, which may fail, or make progress, by themselves.
constexpr absl::Duration kIdleLook = absl::Milliseconds(100);

// How a machine without GPUs looks, which is nothing that was asked for and not found.
absl::Status AsPrecondition(const absl::Status& status) {
  if (!absl::IsNotFound(status)) return status;
  return absl::FailedPreconditionError(status.message());
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuLoop>> GpuLoop::Create(EventLoop& loop, const Clock& clock,
                                                         UniqueFd socket, Options options) {
  auto made = absl::WrapUnique(new GpuLoop(loop, clock, std::move(options)));
  GpuLoop* const raw = made.get();
  ASSIGN_OR_RETURN(
      raw->socket_,
      MessageSocket::Create(std::move(socket),
                            {.on_message =
                                 [raw](const std::string& bytes, UniqueFd descriptor) {
                                   raw->OnMessage(bytes, std::move(descriptor));
                                 },
                             .on_closed = [raw](const absl::Status& why) { raw->OnClosed(why); }}));
  loop.AddSource(*raw->socket_);
  absl::Status status = raw->Open();
  if (status.ok()) return made;
  // Or the worker would only see that the process ended.
  raw->End(status);
  return status;
}

GpuLoop::GpuLoop(EventLoop& loop, const Clock& clock, Options options)
    : loop_(loop), clock_(clock), options_(std::move(options)) {}

GpuLoop::~GpuLoop() {
  loop_.Cancel(next_look_);
  if (socket_ != nullptr) loop_.RemoveSource(*socket_);
}

absl::Status GpuLoop::Open() {
  RETURN_IF_ERROR(OpenLibraries());
  ASSIGN_OR_RETURN(gpu_, Gpu::Create(*driver_, UuidOf(options_.gpu)));
  ASSIGN_OR_RETURN(staging_, RegisteredStaging::Allocate(*nccl_, options_.staging_bytes.value()));
  ASSIGN_OR_RETURN(arenas_, GpuArenas::Create(*gpu_));
  m2n_ = std::make_unique<M2nRuntime>(*driver_, M2nApi::Load(*nccl_, options_.m2n),
                                      options_.communicator_ctas.max);
  OpenCommunicators();
  ASSIGN_OR_RETURN(tasks_,
                   GpuTasks::Create({.loop = loop_,
                                     .gpu = *gpu_,
                                     .staging = *staging_,
                                     .arenas = *arenas_,
                                     .communicators = *orders_,
                                     .check_m2n = [this] { return m2n_->CheckUsable(); },
                                     .m2n_library = m2n_->description(),
                                     .libraries = {driver_->description(), nccl_->description()}}));
  ASSIGN_OR_RETURN(copies_, TileCopies::Create({.loop = loop_, .gpu = *gpu_, .arenas = *arenas_}));
  ASSIGN_OR_RETURN(
      measurement_,
      GpuMeasurement::Create(
          {.clock = clock_, .gpu = *gpu_, .staging = *staging_, .communicators = *orders_}));
  ASSIGN_OR_RETURN(const v1::GpuNotice::Answer preflight, TakePreflight());
  ASSIGN_OR_RETURN(const std::string pci_address, gpu_->PciAddress());
  v1::GpuNotice notice;
  notice.mutable_hello()->set_protocol(kGpuProtocol);
  notice.mutable_hello()->set_pci_address(pci_address);
  *notice.mutable_hello()->mutable_preflight() = preflight.preflight().report();
  if (options_.hardware.has_value())
    *notice.mutable_hello()->mutable_hardware() = *options_.hardware;
  Say(notice);
  return absl::OkStatus();
}

absl::Status GpuLoop::OpenLibraries() {
  absl::StatusOr<std::unique_ptr<const DriverApi>> driver = DriverApi::Load(options_.driver);
  if (!driver.ok()) return AsPrecondition(driver.status());
  driver_ = *std::move(driver);
  absl::StatusOr<std::unique_ptr<const NcclApi>> nccl = NcclApi::Load(options_.nccl);
  if (!nccl.ok()) return AsPrecondition(nccl.status());
  nccl_ = *std::move(nccl);
  return absl::OkStatus();
}

void GpuLoop::OpenCommunicators() {
  communicators_ = std::make_unique<CommunicatorTable>(
      clock_, *driver_, *nccl_,
      CommunicatorTable::Options{.self = {.gpu = options_.gpu, .incarnation = options_.incarnation},
                                 .staging = staging_.get(),
                                 .timeouts = {.creating = kNoLimit,
                                              .finalizing = kNoLimit,
                                              .ending = options_.communicator_end_limit},
                                 .ctas = options_.communicator_ctas,
                                 .m2n = m2n_.get()});
  const auto on_lost = [this](const CommunicatorKey& key, const absl::Status& cause) {
    v1::GpuNotice notice;
    *notice.mutable_communicator_lost()->mutable_key() = ToProto(key);
    *notice.mutable_communicator_lost()->mutable_cause() = ToProto(cause);
    Say(notice);
  };
  const auto on_change = [this](const Communicator& communicator, CommunicatorState state,
                                const absl::Status& cause) {
    // They are there by then: the first communicator comes by a request.
    tasks_->OnCommunicatorChange(communicator, state, cause);
    measurement_->OnCommunicatorChange(communicator, state, cause);
  };
  orders_ = std::make_unique<CommunicatorOrders>(
      clock_, *communicators_,
      CommunicatorOrders::Handlers{.on_lost = on_lost, .on_change = on_change});
}

void GpuLoop::OnMessage(absl::string_view bytes, UniqueFd descriptor) {
  if (is_over_) return;
  const absl::StatusOr<v1::GpuRequest> request = ParseGpuRequest(bytes);
  if (!request.ok()) return End(request.status());
  CarryOut(*request, std::move(descriptor));
  if (const absl::Status status = health(); !status.ok()) return End(status);
  if (!is_idle()) LookSoon();
}

void GpuLoop::CarryOut(const v1::GpuRequest& request, UniqueFd descriptor) {
  const uint64_t id = request.id();
  const auto end = [this, id](const absl::Status& status) { Reply(id, status); };
  const auto end_order = [this, id](const absl::StatusOr<int64_t>& bytes) {
    Reply(id, bytes.status());
  };
  switch (request.body_case()) {
    case v1::GpuRequest::kCreateArena:
      return arenas_->CreateArena(request.create_arena(), [this, id](auto memory) {
        Reply(id, memory.status(), {}, memory.ok() ? *std::move(memory) : UniqueFd());
      });
    case v1::GpuRequest::kImportArena:
      return end(arenas_->Import(request.import_arena(), descriptor));
    case v1::GpuRequest::kReleaseArena:
      // A binding keeps the memory of its tiles, which would outlive the arena.
      tasks_->Forget(ArenaId(request.release_arena().arena()));
      return end(arenas_->Release(ArenaId(request.release_arena().arena())));
    case v1::GpuRequest::kMintCommunicatorId:
      return Reply(id, MintCommunicatorId());
    case v1::GpuRequest::kCreateCommunicator:
      return orders_->Create(request.create_communicator(), [this, id](const auto& bytes) {
        v1::GpuNotice::Answer answer;
        answer.mutable_created()->set_size_bytes(bytes.value_or(0));
        Reply(id, bytes.status(), std::move(answer));
      });
    case v1::GpuRequest::kDestroyCommunicator:
      return orders_->Destroy(request.destroy_communicator(), end_order);
    case v1::GpuRequest::kStopCommunicator:
      return orders_->Stop(request.stop_communicator(), end_order);
    case v1::GpuRequest::kBeginEpoch:
      return orders_->BeginEpoch(request.begin_epoch().epoch(), end_order);
    case v1::GpuRequest::kGetPreflight:
      return Reply(id, TakePreflight());
    case v1::GpuRequest::kRunTask:
      return RunTask(request);
    case v1::GpuRequest::kMeasureGpu:
      return Measure(id, request.measure_gpu());
    case v1::GpuRequest::kCopyTiles:
      return copies_->Begin(request.copy_tiles(), std::move(descriptor), end);
    case v1::GpuRequest::kReleaseBounceBuffers:
      return copies_->Release(FromProto(request.release_bounce_buffers().key()), end);
    case v1::GpuRequest::kCancelTask:
      Cancel(request.cancel_task());
      return end(absl::OkStatus());
    case v1::GpuRequest::kPing:
      return end(absl::OkStatus());
    case v1::GpuRequest::BODY_NOT_SET:
      break;
  }
  end(Malformed("body", "a request", "none that is known"));
}

GpuLoop::Result GpuLoop::MintCommunicatorId() const {
  ASSIGN_OR_RETURN(std::string id, MintId(*nccl_));
  v1::GpuNotice::Answer answer;
  answer.mutable_minted()->set_id(std::move(id));
  return answer;
}

GpuLoop::Result GpuLoop::TakePreflight() const {
  ASSIGN_OR_RETURN(
      PreflightReport report,
      crossmesh::TakePreflight(*driver_, *nccl_,
                               {.gpu = options_.gpu, .incarnation = options_.incarnation}));
  report.communicators = communicators_->MemoryByTicket();
  report.m2n = m2n_->CheckUsable().ok();
  v1::GpuNotice::Answer answer;
  *answer.mutable_preflight()->mutable_report() = ToProto(report);
  return answer;
}

void GpuLoop::Cancel(const v1::GpuRequest::CancelTask& request) {
  const TaskKey key = FromProto(request.key());
  const absl::Status cause = CauseFromProto(request.cause());
  // A worker knows its task; whether it runs or is copied here only these do.
  tasks_->Cancel(key, cause);
  copies_->Cancel(key, cause);
}

void GpuLoop::RunTask(const v1::GpuRequest& request) {
  const uint64_t id = request.id();
  if (!measurement_->is_empty()) {
    return Reply(id, absl::FailedPreconditionError("a measurement runs on the GPU"));
  }
  tasks_->Begin(request, [this, id](Result result) { Reply(id, std::move(result)); });
}

void GpuLoop::Measure(uint64_t id, const v1::MeasureGpuRequest& request) {
  if (!tasks_->is_empty() || copies_->is_copying()) {
    return Reply(id, absl::FailedPreconditionError("a task runs on the GPU"));
  }
  measurement_->Begin(request, [this, id](absl::StatusOr<v1::MeasureGpuResponse> figures) {
    v1::GpuNotice::Answer answer;
    if (figures.ok()) *answer.mutable_measured() = *std::move(figures);
    Reply(id, figures.status(), std::move(answer));
  });
}

bool GpuLoop::is_working() const {
  return !tasks_->is_empty() || copies_->is_copying() || !measurement_->is_empty();
}

void GpuLoop::OnClosed(const absl::Status& why) {
  if (absl::IsInvalidArgument(why)) return End(why);
  if (is_working()) return End(absl::UnavailableError("the worker has gone in a task"));
  has_worker_gone_ = true;
  LookSoon();
}

void GpuLoop::Reply(uint64_t id, Result result) {
  const absl::Status status = result.status();
  Reply(id, status, result.ok() ? *std::move(result) : v1::GpuNotice::Answer());
}

void GpuLoop::Reply(uint64_t id, const absl::Status& status, v1::GpuNotice::Answer answer,
                    UniqueFd memory) {
  v1::GpuNotice notice;
  *notice.mutable_answer() = std::move(answer);
  notice.mutable_answer()->set_request(id);
  *notice.mutable_answer()->mutable_status() = ToProto(status);
  Say(notice, std::move(memory));
}

void GpuLoop::Say(const v1::GpuNotice& notice, UniqueFd descriptor) {
  if (is_over_ || has_worker_gone_) return;
  const absl::Status said = socket_->Send(notice.SerializeAsString(), std::move(descriptor));
  if (!said.ok()) End(said);
}

void GpuLoop::End(const absl::Status& why) {
  if (std::exchange(is_over_, true)) return;
  end_ = why;
  v1::GpuNotice notice;
  *notice.mutable_last_words()->mutable_cause() = ToProto(why);
  // Whether it gets through or not, the worker sees the end.
  static_cast<void>(socket_->Send(notice.SerializeAsString()));
}

void GpuLoop::LookSoon() {
  // Requests that follow each other closely must not put the look off for ever.
  if (std::exchange(is_look_near_, true)) return;
  loop_.Cancel(next_look_);
  next_look_ = loop_.RunAfter(kBusyLook, [this] { Look(); });
}

void GpuLoop::Look() {
  is_look_near_ = false;
  if (const absl::Status status = Poll(); !status.ok()) End(status);
  // Memory must not go while it is being filled or given back, which ends by itself.
  if (has_worker_gone_ && !arenas_->is_filling() && copies_->is_empty()) is_over_ = true;
  if (is_over_) return;
  if (is_busy()) return LookSoon();
  // Progress is not worth a message at every busy look.
  for (const v1::GpuNotice& progress : tasks_->Progress()) Say(progress);
  if (is_idle()) return;
  next_look_ = loop_.RunAfter(kIdleLook, [this] { Look(); });
}

absl::Status GpuLoop::Poll() {
  orders_->Poll();
  measurement_->Poll();
  RETURN_IF_ERROR(arenas_->Poll());
  return health();
}

absl::Status GpuLoop::health() const {
  RETURN_IF_ERROR(orders_->health());
  RETURN_IF_ERROR(gpu_->health());
  RETURN_IF_ERROR(copies_->health());
  // When what it failed has been told.
  if (tasks_->is_empty()) RETURN_IF_ERROR(m2n_->failure());
  return tasks_->health();
}

bool GpuLoop::is_busy() const {
  return orders_->is_busy() || arenas_->is_filling() || !measurement_->is_empty();
}

bool GpuLoop::is_idle() const {
  return !is_busy() && orders_->is_empty() && tasks_->is_empty() && copies_->is_empty();
}

}  // namespace crossmesh
