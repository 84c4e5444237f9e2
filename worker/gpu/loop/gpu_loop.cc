#include "worker/gpu/loop/gpu_loop.h"

#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "common/wire/communicator_codec.h"
#include "worker/gpu/protocol/gpu_message.h"
#include "worker/gpu/protocol/gpu_protocol.h"

#include <string>
#include <utility>

#include <absl/memory/memory.h>

namespace crossmesh {
namespace {

// Between two looks, while a request waits for what they find.
constexpr absl::Duration kBusyLook = absl::Milliseconds(1);
// While communicators or tasks are there, which may fail, or make progress, by themselves.
constexpr absl::Duration kIdleLook = absl::Milliseconds(100);

}  // namespace

absl::StatusOr<std::unique_ptr<GpuLoop>> GpuLoop::Create(EventLoop& loop, const Clock& clock,
                                                         UniqueFd socket, Options options) {
  auto made = absl::WrapUnique(new GpuLoop(loop));
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
  const absl::Status status = raw->Open(clock, std::move(options));
  if (status.ok()) return made;
  // Or the worker would only see that the process ended.
  raw->End(status);
  return status;
}

GpuLoop::~GpuLoop() {
  loop_.Cancel(next_look_);
  if (socket_ != nullptr) loop_.RemoveSource(*socket_);
}

absl::Status GpuLoop::Open(const Clock& clock, Options options) {
  ASSIGN_OR_RETURN(requests_,
                   GpuRequests::Create(loop_, clock, std::move(options),
                                       [this](const v1::GpuNotice& notice) { Say(notice); }));
  ASSIGN_OR_RETURN(const PreflightReport preflight, requests_->Preflight());
  ASSIGN_OR_RETURN(const std::string pci_address, requests_->PciAddress());
  v1::GpuNotice notice;
  notice.mutable_hello()->set_protocol(kGpuProtocol);
  notice.mutable_hello()->set_pci_address(pci_address);
  *notice.mutable_hello()->mutable_preflight() = ToProto(preflight);
  Say(notice);
  return absl::OkStatus();
}

void GpuLoop::OnMessage(absl::string_view bytes, UniqueFd descriptor) {
  if (is_over_) return;
  const absl::StatusOr<v1::GpuRequest> request = ParseGpuRequest(bytes);
  if (!request.ok()) return End(request.status());
  requests_->CarryOut(*request, std::move(descriptor),
                      [this, id = request->id()](v1::GpuNotice::Answer answer, UniqueFd memory) {
                        v1::GpuNotice notice;
                        *notice.mutable_answer() = std::move(answer);
                        notice.mutable_answer()->set_request(id);
                        Say(notice, std::move(memory));
                      });
  if (const absl::Status health = requests_->health(); !health.ok()) return End(health);
  if (!requests_->is_idle()) LookSoon();
}

void GpuLoop::OnClosed(const absl::Status& why) {
  if (absl::IsInvalidArgument(why)) return End(why);
  // What runs uses its memory until the process ends, or its peers have answered.
  if (requests_->is_moving()) {
    return End(absl::UnavailableError("the worker has gone in a task"));
  }
  has_worker_gone_ = true;
  LookSoon();
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
  if (const absl::Status status = requests_->Poll(); !status.ok()) End(status);
  // Memory must not go while it is being filled.
  if (has_worker_gone_ && !requests_->is_filling()) is_over_ = true;
  if (is_over_) return;
  if (requests_->is_busy()) return LookSoon();
  // Progress is not worth a message at every busy look.
  for (const v1::GpuNotice& progress : requests_->Progress()) Say(progress);
  if (requests_->is_idle()) return;
  next_look_ = loop_.RunAfter(kIdleLook, [this] { Look(); });
}

}  // namespace crossmesh
