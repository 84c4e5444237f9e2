#include "worker/gpu/process/gpu_process.h"

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/communicators/gpu_share.h"
#include "common/wire/time_codec.h"
#include "worker/gpu/process/child_environment.h"
#include "worker/gpu/process/child_options.h"
#include "worker/gpu/process/child_output.h"
#include "worker/gpu/protocol/gpu_protocol.h"
#include "worker/memory/lent_allocation.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>
#include <fcntl.h>

namespace crossmesh {
namespace {

// Said before the process had its GPU, or in the place of a process: another one would say the
// same.
bool IsFinal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsNotFound(status) ||
         absl::IsPermissionDenied(status);
}

// In a request of ours.
absl::Duration TimeOf(const google::protobuf::Duration& proto) {
  return FromProto(proto).value_or(absl::ZeroDuration());
}

v1::GpuRequest ImportOf(ArenaId arena, const KeptArenas::Kept& kept) {
  v1::GpuRequest request;
  request.mutable_import_arena()->set_arena(arena.value());
  request.mutable_import_arena()->set_size_bytes(kept.bytes.value());
  request.mutable_import_arena()->set_ipc_handle(kept.ipc_handle);
  return request;
}

}  // namespace

GpuProcess::GpuProcess(EventLoop& loop, const Clock& clock, GpuProcessOptions options,
                       Handlers handlers)
    : loop_(loop),
      clock_(clock),
      options_(std::move(options)),
      handlers_(std::move(handlers)),
      // From the time, so that the processes of a worker that is started again are others.
      incarnation_(absl::ToUnixMicros(clock.Now())),
      cause_(absl::UnavailableError("it has not begun")),
      backoff_(options_.backoff, incarnation_),
      arenas_(UuidOf(options_.gpu), options_.system_root) {}

GpuProcess::~GpuProcess() { Stop(); }

void GpuProcess::Start() {
  CHECK(state_ == State::kNew);
  StartProcess();
}

void GpuProcess::Stop() {
  GpuProcess* const self[] = {this};
  StopAll(self);
}

void GpuProcess::StopAll(std::span<GpuProcess* const> processes) {
  if (processes.empty()) return;
  const auto await_all = [&](absl::Duration GpuProcessOptions::* limit_of) {
    absl::Duration limit;
    for (const GpuProcess* process : processes) {
      limit = std::max(limit, process->options_.*limit_of);
    }
    const Clock& clock = processes.front()->clock_;
    const absl::Duration deadline = clock.Monotonic() + limit;
    for (const GpuProcess* process : processes) {
      process->AwaitExit(std::max(deadline - clock.Monotonic(), absl::ZeroDuration()));
    }
  };
  for (GpuProcess* process : processes) process->BeginStop();
  await_all(&GpuProcessOptions::stop_limit);
  for (GpuProcess* process : processes) {
    if (process->child_ != nullptr) process->child_->Kill();
  }
  await_all(&GpuProcessOptions::kill_limit);
  for (GpuProcess* process : processes) {
    if (!process->AwaitExit(absl::ZeroDuration())) process->child_->GiveUp();
    process->Drop();
  }
}

// A closed socket asks the process to end.
void GpuProcess::BeginStop() {
  if (std::exchange(state_, State::kStopped) == State::kStopped) return;
  loop_.Cancel(restart_);
  loop_.Cancel(kill_late_);
  if (connection_ != nullptr) connection_->Close();
  // Before the process has ended: the last close of the GPU takes a second or more.
  arenas_.ReleaseDevice();
}

bool GpuProcess::AwaitExit(absl::Duration timeout) const {
  return child_ == nullptr || child_->AwaitExit(timeout);
}

void GpuProcess::StartProcess() {
  state_ = State::kStarting;
  ++incarnation_;
  const absl::Status status = TryStart();
  if (status.ok()) return;
  // What has begun of it must not tell that it is lost.
  Drop();
  loop_.Post([this, status] { OnNotStarted(status); });
}

// What the system lacks for a process now, such as descriptors, it may have later.
void GpuProcess::OnNotStarted(const absl::Status& why) {
  if (state_ == State::kStopped) return;
  LogWarning("gpu_process_not_started", {{"gpu", options_.gpu}, {"cause", why.ToString()}});
  cause_ = why;
  if (!is_hopeless()) handlers_.on_down(why);
  Replace();
}

absl::Status GpuProcess::TryStart() {
  ASSIGN_OR_RETURN(auto ends, MessageSocket::MakePair());
  ASSIGN_OR_RETURN(
      connection_,
      GpuConnection::Create(
          loop_, std::move(ends.first),
          {.rank = {.gpu = options_.gpu, .incarnation = incarnation_},
           .start_limit = options_.start_limit,
           .ping_interval = options_.ping_interval,
           .ping_limit = options_.ping_limit},
          {.on_hello =
               [this](const PreflightReport& preflight, const v1::GpuNotice::Hello& hello) {
                 pci_address_ = hello.pci_address();
                 if (hello.has_hardware()) hardware_ = hello.hardware();
                 OnHello(preflight);
               },
           .on_communicator_lost = [this](
                                       const CommunicatorKey& key,
                                       const absl::Status& why) { OnCommunicatorLost(key, why); },
           .on_lost = [this](const absl::Status& why) { OnLost(why); }}));
  GpuChild::Options options = ChildOptions(options_, incarnation_);
  UniqueFd output;
  // Whoever asks for more than warnings, or elsewhere, gets it there.
  if (!HasVariable(options.environment, "NCCL_DEBUG") &&
      !HasVariable(options.environment, "NCCL_DEBUG_FILE")) {
    options.environment.emplace_back("NCCL_DEBUG=WARN");
    ASSIGN_OR_RETURN(ChildOutput::Made made, ChildOutput::Create());
    output_ = std::move(made.output);
    loop_.AddSource(*output_);
    output = std::move(made.end);
    options.standard_output = output.get();
  }
  ASSIGN_OR_RETURN(child_, GpuChild::Start(options, std::move(ends.second),
                                           [this](const std::string& how) { OnExit(how); }));
  loop_.AddSource(*child_);
  return absl::OkStatus();
}

void GpuProcess::OnHello(const PreflightReport& preflight) {
  state_ = State::kRestoring;
  Restore(preflight);
}

void GpuProcess::Restore(PreflightReport preflight) {
  arenas_.BeginImports();
  for (const auto& [id, kept] : arenas_.all()) {
    absl::StatusOr<UniqueFd> descriptor = arenas_.Export(id);
    if (!descriptor.ok()) return connection_->Lose(descriptor.status());
    connection_->Call(ImportOf(id, kept), *std::move(descriptor), options_.answer_limit,
                      {.done = [this, arena = id](const absl::StatusOr<Reply>& reply) {
                        OnImported(arena, reply.status());
                      }});
  }
  // Imports are answered in the order of the requests, so all are there when the last answer is.
  v1::GpuRequest ping;
  ping.mutable_ping();
  connection_->Call(
      std::move(ping), UniqueFd(), options_.answer_limit,
      {.done = [this, preflight = std::move(preflight)](const absl::StatusOr<Reply>& reply) {
        if (reply.ok()) GoUp(preflight);
      }});
}

void GpuProcess::OnImported(ArenaId arena, const absl::Status& imported) {
  switch (arenas_.OnImported(arena, imported)) {
    case KeptArenas::Import::kDone:
      return;
    case KeptArenas::Import::kLost:
      return handlers_.on_arena_lost(arena, imported);
    case KeptArenas::Import::kMayBeDone:
      return connection_->Lose(imported);
  }
}

void GpuProcess::GoUp(const PreflightReport& preflight) {
  state_ = State::kUp;
  was_up_ = true;
  up_since_ = clock_.Monotonic();
  LogInfo("gpu_process_up", {{"gpu", options_.gpu},
                             {"pid", pid()},
                             {"nccl", preflight.nccl_library},
                             {"arenas", std::ssize(arenas_.all())}});
  handlers_.on_up(preflight);
}

void GpuProcess::OnCommunicatorLost(const CommunicatorKey& key, const absl::Status& why) const {
  LogWarning("communicator_lost", {{"gpu", options_.gpu},
                                   {"communicator", key.ToString()},
                                   {"cause", why.ToString()},
                                   {"output", LastOutput()}});
}

void GpuProcess::OnLost(const absl::Status& why) {
  const bool was_up = state_ == State::kUp;
  if (state_ == State::kRestoring) {
    const std::optional<ArenaId> lost = arenas_.JudgeSuspect();
    if (lost.has_value()) handlers_.on_arena_lost(*lost, why);
  }
  // Only after a while: what fails soon after each start is to be started ever later.
  if (was_up && clock_.Monotonic() - up_since_ > options_.backoff.max) backoff_.Reset();
  state_ = State::kEnding;
  cause_ = why;
  // Nothing else ends a call that hangs in the driver; the next process waits for OnExit.
  child_->Kill();
  kill_late_ = loop_.RunAfter(options_.kill_limit, [this] { OnKillLate(); });
  if (!is_hopeless()) handlers_.on_down(why);
}

// Another process could not use the GPU either; one is started when this one ends after all.
void GpuProcess::OnKillLate() {
  cause_ = absl::UnavailableError(absl::StrCat("its process ", pid(), " goes on ",
                                               absl::FormatDuration(options_.kill_limit),
                                               " after SIGKILL, so it hangs in the driver, which "
                                               "takes a reset of the GPU or of the host; it "
                                               "was killed because: ",
                                               cause_.message()));
  LogError("gpu_process_does_not_end", {{"gpu", options_.gpu}, {"cause", cause_.ToString()}});
  if (!is_hopeless()) handlers_.on_down(cause_);
}

void GpuProcess::OnExit(const std::string& how) {
  // Usually its socket has told before.
  connection_->Lose(absl::UnavailableError(absl::StrCat("it ended: ", how)));
  loop_.Cancel(kill_late_);
  LogWarning("gpu_process_ended", {{"gpu", options_.gpu},
                                   {"how", how},
                                   {"cause", cause_.ToString()},
                                   {"output", LastOutput()}});
  // Not from inside the child's own call.
  loop_.Post([this] {
    if (state_ == State::kEnding) Replace();
  });
}

bool GpuProcess::is_hopeless() const { return !was_up_ && IsFinal(cause_); }

void GpuProcess::Replace() {
  Drop();
  if (is_hopeless()) return GiveUp(cause_);
  state_ = State::kPausing;
  restart_ = loop_.RunAfter(backoff_.Next(), [this] { StartProcess(); });
}

void GpuProcess::Drop() {
  connection_.reset();
  if (child_ != nullptr) loop_.RemoveSource(*child_);
  child_.reset();
  if (output_ != nullptr) loop_.RemoveSource(*output_);
  output_.reset();
}

std::string GpuProcess::LastOutput() const {
  return output_ == nullptr ? "" : output_->LastLines();
}

void GpuProcess::GiveUp(const absl::Status& why) {
  if (state_ == State::kStopped) return;
  Drop();
  state_ = State::kGivenUp;
  cause_ = why;
  LogWarning("gpu_unavailable", {{"gpu", options_.gpu}, {"cause", why.ToString()}});
  handlers_.on_given_up(why);
}

absl::Status GpuProcess::NotUp() const {
  return absl::UnavailableError(
      absl::StrCat("GPU ", options_.gpu, " is not up: ", cause_.message()));
}

absl::Duration GpuProcess::LimitOf(const v1::GpuRequest& request) const {
  // What may have to end a communicator, when its own time is over.
  const absl::Duration ending = options_.communicator_end_limit + options_.answer_limit;
  switch (request.body_case()) {
    case v1::GpuRequest::kCreateCommunicator:
      return TimeOf(request.create_communicator().timeout()) + ending;
    case v1::GpuRequest::kDestroyCommunicator:
      return TimeOf(request.destroy_communicator().timeout()) + ending;
    case v1::GpuRequest::kStopCommunicator:
    case v1::GpuRequest::kBeginEpoch:
      return ending;
    case v1::GpuRequest::kRunTask:
      return TimeOf(request.run_task().deadline()) + ending;
    case v1::GpuRequest::kMeasureGpu:
      return TimeOf(request.measure_gpu().timeout()) + ending;
    case v1::GpuRequest::kCopyTiles:
      return TimeOf(request.copy_tiles().deadline()) + options_.answer_limit;
    case v1::GpuRequest::kCreateArena:
    case v1::GpuRequest::kImportArena:
    case v1::GpuRequest::kReleaseArena:
    case v1::GpuRequest::kReleaseBounceBuffers:
    case v1::GpuRequest::kMintCommunicatorId:
    case v1::GpuRequest::kCancelTask:
    case v1::GpuRequest::kPing:
    case v1::GpuRequest::kGetPreflight:
    case v1::GpuRequest::BODY_NOT_SET:
      break;
  }
  return options_.answer_limit;
}

void GpuProcess::Call(v1::GpuRequest request, UniqueFd descriptor, Callbacks callbacks) {
  if (!is_up()) {
    loop_.Post([status = NotUp(), done = std::move(callbacks.done)]() mutable { done(status); });
    return;
  }
  const absl::Duration limit = LimitOf(request);
  connection_->Call(std::move(request), std::move(descriptor), limit, std::move(callbacks));
}

void GpuProcess::CreateArena(ByteCount bytes,
                             absl::AnyInvocable<void(absl::StatusOr<ArenaId>)> done) {
  const ArenaId arena(++last_arena_);
  v1::GpuRequest request;
  request.mutable_create_arena()->set_arena(arena.value());
  request.mutable_create_arena()->set_size_bytes(bytes.value());
  Call(std::move(request),
       [this, arena, bytes, done = std::move(done)](absl::StatusOr<Reply> reply) mutable {
         KeptArenas::Kept kept = {.bytes = bytes};
         if (reply.ok()) kept.descriptor = std::move(reply->descriptor);
         Keep(arena, std::move(kept), reply.status(), std::move(done));
       });
}

void GpuProcess::ImportArena(ByteCount bytes, LentAllocation memory,
                             absl::AnyInvocable<void(absl::StatusOr<ArenaId>)> done) {
  const ArenaId arena(++last_arena_);
  UniqueFd sent;
  if (memory.descriptor.valid()) {
    sent.Reset(fcntl(memory.descriptor.get(), F_DUPFD_CLOEXEC, 0));
    if (!sent.valid()) {
      const absl::Status status = absl::ErrnoToStatus(errno, "duplicating a descriptor");
      loop_.Post([status, done = std::move(done)]() mutable { done(status); });
      return;
    }
  }
  KeptArenas::Kept kept = {.bytes = bytes,
                           .descriptor = std::move(memory.descriptor),
                           .ipc_handle = std::move(memory.ipc_handle)};
  v1::GpuRequest request = ImportOf(arena, kept);
  Call(std::move(request), std::move(sent),
       {.done = [this, arena, kept = std::move(kept),
                 done = std::move(done)](const absl::StatusOr<Reply>& reply) mutable {
         Keep(arena, std::move(kept), reply.status(), std::move(done));
       }});
}

void GpuProcess::Keep(ArenaId arena, KeptArenas::Kept kept, const absl::Status& made,
                      absl::AnyInvocable<void(absl::StatusOr<ArenaId>)> done) {
  if (!made.ok()) return done(made);
  arenas_.Keep(arena, std::move(kept), pci_address_);
  done(arena);
}

void GpuProcess::ReleaseArena(ArenaId arena) {
  if (!arenas_.Forget(arena)) return;
  // No other process has it: what is not kept is not imported.
  if (state_ != State::kUp && state_ != State::kRestoring) return;
  v1::GpuRequest request;
  request.mutable_release_arena()->set_arena(arena.value());
  connection_->Call(std::move(request), UniqueFd(), options_.answer_limit,
                    {.done = [](const absl::StatusOr<Reply>& /*reply*/) {}});
}

}  // namespace crossmesh
