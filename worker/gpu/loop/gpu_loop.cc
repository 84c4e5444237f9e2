#include "worker/gpu/loop/gpu_loop.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/gpu/communicators/nccl_communicator.h"
#include "worker/gpu/communicators/preflight.h"
#include "worker/gpu/protocol/gpu_message_codec.h"

#include <utility>
#include <variant>
#include <vector>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Between two looks, while somebody waits for what comes of them.
constexpr absl::Duration kBusyLook = absl::Milliseconds(1);
// While communicators or tasks are there, which may fail, or make progress, by themselves.
constexpr absl::Duration kIdleLook = absl::Milliseconds(100);
// Longer than what any order may take; orders have their own limits.
constexpr absl::Duration kNoLimit = absl::Hours(48);

// How a machine without GPUs looks, which is nothing that was asked for and not found.
absl::Status AsPrecondition(const absl::Status& status) {
  if (!absl::IsNotFound(status)) return status;
  return absl::FailedPreconditionError(status.message());
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuLoop>> GpuLoop::Create(EventLoop& loop, const Clock& clock,
                                                         UniqueFd socket, Options options) {
  auto made = absl::WrapUnique(new GpuLoop(loop, clock, std::move(options)));
  ASSIGN_OR_RETURN(made->socket_, MessageSocket::Create(std::move(socket), *made));
  loop.AddSource(*made->socket_);
  const absl::Status status = made->Open();
  if (status.ok()) return made;
  made->End(status);
  return status;
}

GpuLoop::GpuLoop(EventLoop& loop, const Clock& clock, Options options)
    : loop_(loop), clock_(clock), options_(std::move(options)) {}

GpuLoop::~GpuLoop() {
  loop_.Cancel(next_look_);
  if (socket_ != nullptr) loop_.RemoveSource(*socket_);
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

absl::Status GpuLoop::Open() {
  RETURN_IF_ERROR(OpenLibraries());
  ASSIGN_OR_RETURN(gpu_, Gpu::Create(*driver_, options_.gpu));
  ASSIGN_OR_RETURN(staging_, RegisteredStaging::Allocate(*nccl_, options_.staging_bytes.value()));
  ASSIGN_OR_RETURN(arenas_, GpuArenas::Create(*gpu_));
  communicators_ = std::make_unique<CommunicatorTable>(
      clock_, *driver_, *nccl_, staging_.get(),
      CommunicatorTable::Options{.self = {.gpu = options_.gpu, .incarnation = options_.incarnation},
                                 .timeouts = {.creating = kNoLimit,
                                              .finalizing = kNoLimit,
                                              .ending = options_.communicator_end_limit},
                                 .ctas = options_.communicator_ctas});
  orders_ = std::make_unique<CommunicatorOrders>(clock_, *communicators_,
                                                 static_cast<CommunicatorOrders::Listener&>(*this));
  ASSIGN_OR_RETURN(tasks_, GpuTasks::Create({.loop = loop_,
                                             .gpu = *gpu_,
                                             .staging = *staging_,
                                             .arenas = *arenas_,
                                             .communicators = *orders_,
                                             .listener = *this}));
  ASSIGN_OR_RETURN(copies_, TileCopies::Create(*gpu_, *arenas_));
  return SayHello();
}

absl::Status GpuLoop::SayHello() {
  ASSIGN_OR_RETURN(
      PreflightReport preflight,
      TakePreflight(*driver_, *nccl_, {.gpu = options_.gpu, .incarnation = options_.incarnation}));
  Say(GpuNotice::Hello{.preflight = std::move(preflight)});
  return absl::OkStatus();
}

void GpuLoop::OnMessage(std::string bytes, UniqueFd descriptor) {
  if (is_over_) return;
  const absl::StatusOr<GpuRequest> request = DecodeGpuRequest(bytes);
  if (!request.ok()) return End(request.status());
  const absl::Status status =
      std::visit([&](const auto& body) { return Handle(request->id, body, std::move(descriptor)); },
                 request->body);
  if (!status.ok()) Answer({.request = request->id, .status = status});
  if (const absl::Status health = Health(); !health.ok()) End(health);
}

void GpuLoop::OnClosed(const absl::Status& why) {
  if (absl::IsInvalidArgument(why)) return End(why);
  // What runs uses its memory until the process ends, or its peers have answered.
  if (!tasks_->is_empty() || !copies_->is_empty()) {
    return End(absl::UnavailableError("the worker has gone in a task"));
  }
  has_worker_gone_ = true;
  LookSoon();
}

void GpuLoop::Answer(GpuNotice::Answer answer, UniqueFd descriptor) {
  Say(std::move(answer), std::move(descriptor));
}

void GpuLoop::Say(GpuNotice::Body body, UniqueFd descriptor) {
  if (is_over_ || has_worker_gone_) return;
  const absl::Status said = socket_->Send(Encode({.body = std::move(body)}), std::move(descriptor));
  if (!said.ok()) End(said);
}

void GpuLoop::End(const absl::Status& why) {
  if (std::exchange(is_over_, true)) return;
  end_ = why;
  // Whether it gets through or not, the worker sees the end.
  static_cast<void>(socket_->Send(Encode({.body = GpuNotice::LastWords{.cause = why}})));
}

absl::Status GpuLoop::Health() const {
  return gpu_->health().ok() ? tasks_->health() : gpu_->health();
}

absl::Status GpuLoop::Handle(uint64_t id, const GpuRequest::CreateArena& request,
                             UniqueFd /*descriptor*/) {
  RETURN_IF_ERROR(arenas_->Begin(request.arena, request.bytes));
  filling_[request.arena] = id;
  LookSoon();
  return absl::OkStatus();
}

absl::Status GpuLoop::Handle(uint64_t id, const GpuRequest::ImportArena& request,
                             UniqueFd descriptor) {
  if (!descriptor.valid()) {
    return absl::InvalidArgumentError(
        absl::StrCat("arena ", request.arena.value(), ": expected a descriptor, found none"));
  }
  RETURN_IF_ERROR(arenas_->Import(request.arena, request.bytes, descriptor.get()));
  Answer({.request = id});
  return absl::OkStatus();
}

absl::Status GpuLoop::Handle(uint64_t id, const GpuRequest::ReleaseArena& request,
                             UniqueFd /*descriptor*/) {
  tasks_->Forget(request.arena);
  RETURN_IF_ERROR(arenas_->Release(request.arena));
  Answer({.request = id});
  return absl::OkStatus();
}

absl::Status GpuLoop::Handle(uint64_t id, const GpuRequest::MintCommunicatorId& /*request*/,
                             UniqueFd /*descriptor*/) {
  ASSIGN_OR_RETURN(std::string minted, MintId(*nccl_));
  Answer({.request = id, .result = GpuNotice::MintedId{.id = std::move(minted)}});
  return absl::OkStatus();
}

absl::Status GpuLoop::Handle(uint64_t id, const GpuRequest::CreateCommunicator& request,
                             UniqueFd /*descriptor*/) {
  RETURN_IF_ERROR(orders_->Begin(id, request));
  LookSoon();
  return absl::OkStatus();
}

absl::Status GpuLoop::Handle(uint64_t id, const GpuRequest::DestroyCommunicator& request,
                             UniqueFd /*descriptor*/) {
  RETURN_IF_ERROR(orders_->Begin(id, request));
  LookSoon();
  return absl::OkStatus();
}

absl::Status GpuLoop::Handle(uint64_t id, const GpuRequest::StopCommunicator& request,
                             UniqueFd /*descriptor*/) {
  RETURN_IF_ERROR(orders_->Begin(id, request));
  LookSoon();
  return absl::OkStatus();
}

absl::Status GpuLoop::Handle(uint64_t id, const GpuRequest::PreparePart& request,
                             UniqueFd /*descriptor*/) {
  RETURN_IF_ERROR(tasks_->Prepare(request));
  Answer({.request = id});
  return absl::OkStatus();
}

absl::Status GpuLoop::Handle(uint64_t id, const GpuRequest::RunTask& request,
                             UniqueFd /*descriptor*/) {
  RETURN_IF_ERROR(tasks_->Begin(id, request));
  LookSoon();
  return absl::OkStatus();
}

absl::Status GpuLoop::Handle(uint64_t id, const GpuRequest::CopyTiles& request,
                             UniqueFd descriptor) {
  RETURN_IF_ERROR(copies_->Begin(id, request, std::move(descriptor)));
  LookSoon();
  return absl::OkStatus();
}

absl::Status GpuLoop::Handle(uint64_t id, const GpuRequest::CancelTask& request,
                             UniqueFd /*descriptor*/) {
  tasks_->Cancel(request.key, request.cause);
  copies_->Cancel(request.key, request.cause);
  Answer({.request = id});
  return absl::OkStatus();
}

absl::Status GpuLoop::Handle(uint64_t id, const GpuRequest::Ping& /*request*/,
                             UniqueFd /*descriptor*/) {
  Answer({.request = id});
  return absl::OkStatus();
}

void GpuLoop::OnCommunicatorMade(uint64_t request, int64_t bytes) {
  Answer({.request = request, .result = GpuNotice::CommunicatorBytes{.bytes = bytes}});
}

void GpuLoop::OnCommunicatorGone(uint64_t request, const absl::Status& status) {
  Answer({.request = request, .status = status});
}

void GpuLoop::OnCommunicatorLost(const CommunicatorKey& key, const absl::Status& cause) {
  Say(GpuNotice::CommunicatorLost{.key = key, .cause = cause});
}

void GpuLoop::OnCommunicatorHung(const CommunicatorKey& key, const absl::Status& cause) {
  End(absl::DeadlineExceededError(
      absl::StrCat("communicator ", key.ToString(), " is HUNG: ", cause.message())));
}

void GpuLoop::OnCommunicatorChange(const Communicator& communicator, CommunicatorState state,
                                   const absl::Status& cause) {
  tasks_->OnCommunicatorChange(communicator, state, cause);
}

void GpuLoop::OnTaskDone(uint64_t request, const TaskReport& report) {
  TaskReport told = report;
  told.gpu_libraries = {driver_->description(), nccl_->description()};
  Answer({.request = request, .result = std::move(told)});
}

void GpuLoop::LookSoon() {
  loop_.Cancel(next_look_);
  next_look_ = loop_.RunAfter(kBusyLook, [this] { Look(); });
}

void GpuLoop::Look() {
  orders_->Poll();
  absl::Status status = AnswerFilledArenas();
  if (status.ok()) status = AnswerEndedCopies();
  if (status.ok()) status = Health();
  if (!status.ok()) End(status);
  // Memory must not go while it is being filled.
  if (has_worker_gone_ && !arenas_->is_filling()) is_over_ = true;
  if (is_over_) return;
  if (orders_->is_busy() || arenas_->is_filling() || !copies_->is_empty()) return LookSoon();
  for (const GpuNotice::TaskProgress& progress : tasks_->Progress()) Say(progress);
  if (orders_->is_empty() && tasks_->is_empty()) return;
  next_look_ = loop_.RunAfter(kIdleLook, [this] { Look(); });
}

absl::Status GpuLoop::AnswerEndedCopies() {
  ASSIGN_OR_RETURN(const std::vector<TileCopies::Ended> ended, copies_->Poll());
  for (const TileCopies::Ended& copy : ended) {
    Answer({.request = copy.request, .status = copy.status});
  }
  return absl::OkStatus();
}

absl::Status GpuLoop::AnswerFilledArenas() {
  ASSIGN_OR_RETURN(const std::vector<ArenaId> filled, arenas_->Poll());
  for (const ArenaId arena : filled) {
    const auto request = filling_.extract(arena);
    ASSIGN_OR_RETURN(const std::shared_ptr<const GpuMemory> memory, arenas_->Find(arena));
    ASSIGN_OR_RETURN(UniqueFd descriptor, memory->ExportFd());
    Answer({.request = request.mapped()}, std::move(descriptor));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
