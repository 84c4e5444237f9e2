#include "worker/agent/session_agent.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/rpc/address.h"
#include "common/rpc/not_leader.h"
#include "common/rpc/push_back.h"
#include "common/wire/time_codec.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// What a controller can ask for is bounded, so that neither a storm nor silence comes of it.
constexpr absl::Duration kHeartbeatMin = absl::Milliseconds(50);
constexpr absl::Duration kHeartbeatMax = absl::Seconds(60);

// gRPC tells these cases apart in its texts only.
ReconnectReason ReasonOf(const absl::Status& status) {
  const absl::string_view text = status.message();
  if (IsNotLeader(status)) return ReconnectReason::kNotLeader;
  if (absl::StrContains(text, "GOAWAY") || absl::StrContains(text, "max_age")) {
    return ReconnectReason::kGoaway;
  }
  if (absl::StrContains(text, "keepalive") || absl::StrContains(text, "ping timeout")) {
    return ReconnectReason::kKeepalive;
  }
  return ReconnectReason::kEof;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SessionAgent>> SessionAgent::Create(
    const Ports& ports, Options options, std::unique_ptr<SessionCaller> caller) {
  if (options.controllers.empty()) {
    return absl::InvalidArgumentError("session: expected the address of a controller, found none");
  }
  std::vector<std::string> addresses;
  for (const std::string& text : options.controllers) {
    ASSIGN_OR_RETURN(const std::vector<std::string> some, ParseAddressList(text));
    addresses.insert(addresses.end(), some.begin(), some.end());
  }
  options.controllers = std::move(addresses);
  for (const std::string& address : options.controllers) RETURN_IF_ERROR(caller->Check(address));
  return std::unique_ptr<SessionAgent>(
      new SessionAgent(ports, std::move(options), std::move(caller)));
}

SessionAgent::SessionAgent(const Ports& ports, Options options,
                           std::unique_ptr<SessionCaller> caller)
    : loop_(ports.loop),
      host_(ports.host),
      metrics_(ports.metrics),
      options_(std::move(options)),
      caller_(std::move(caller)),
      backoff_({.max = kReconnectPauseMax}, options_.seed),
      random_(options_.seed),
      route_(options_.controllers) {}

SessionAgent::~SessionAgent() = default;

void SessionAgent::Start() { Connect(); }

void SessionAgent::Connect() {
  controller_ = route_.current();
  const uint64_t number = ++session_number_;
  absl::StatusOr<std::shared_ptr<SessionCall>> session = caller_->Open(
      controller_,
      {.on_message = [this, number](const auto& response) { OnResponse(number, response); },
       .on_end = [this, number](const absl::Status& status) { OnEnd(number, status); }});
  if (!session.ok()) {
    // One that another controller has named, and that may not be spoken to.
    LogWarning("leader_refused",
               {{"address", controller_}, {"reason", session.status().message()}});
    route_.Ended(controller_, absl::UnavailableError(session.status().message()));
    timer_ = loop_.RunAfter(backoff_.Next(), [this] { Connect(); });
    return;
  }
  session_ = *std::move(session);
  v1::WorkerSessionRequest request;
  *request.mutable_register_() = options_.registration;
  host_.Refresh(*request.mutable_register_());
  if (speaks_oldest_)
    request.mutable_register_()->set_protocol(options_.registration.oldest_protocol());
  session_->Send(std::move(request));
  // Unless OnRegistered cancels it.
  timer_ = loop_.RunAfter(options_.register_timeout, [session = session_] { session->Cancel(); });
}

void SessionAgent::OnResponse(uint64_t session, const v1::WorkerSessionResponse& response) {
  if (session != session_number_ || session_ == nullptr) return;
  switch (response.message_case()) {
    case v1::WorkerSessionResponse::kRegistered:
      OnRegistered(response.registered());
      break;
    case v1::WorkerSessionResponse::kDrain:
      host_.OnDrain();
      break;
    case v1::WorkerSessionResponse::kUndrain:
      host_.OnUndrain();
      break;
    case v1::WorkerSessionResponse::kOperationsEnded: {
      const auto& ended = response.operations_ended().operations();
      host_.OnOperationsEnded(epoch_, {ended.begin(), ended.end()});
      break;
    }
    case v1::WorkerSessionResponse::MESSAGE_NOT_SET:
      break;  // of a newer controller
  }
}

void SessionAgent::OnRegistered(const v1::WorkerSessionResponse::Registered& registered) {
  loop_.Cancel(timer_);
  backoff_.Reset();
  refused_for_ = absl::ZeroDuration();
  epoch_ = registered.epoch();
  heartbeat_interval_ =
      std::clamp(FromProto(registered.heartbeat_interval()).value_or(kHeartbeatMin), kHeartbeatMin,
                 kHeartbeatMax);
  SetRegistered(true);
  LogInfo("worker_registered", {{"worker_id", options_.registration.worker()},
                                {"epoch", registered.epoch()},
                                {"heartbeat_seconds", absl::ToDoubleSeconds(heartbeat_interval_)}});
  // At once: what the worker holds may have ended while it was away.
  if (!leaving_) SendHeartbeat(PartOfInterval());
}

absl::Duration SessionAgent::PartOfInterval() {
  return std::uniform_real_distribution<double>()(random_) * heartbeat_interval_;
}

void SessionAgent::HurryHeartbeat() {
  // One that is on its way when the timer has fired may not have it yet; the next one will.
  if (registered_ && !leaving_ && loop_.Cancel(timer_)) SendHeartbeat(PartOfInterval());
}

void SessionAgent::SendHeartbeat(absl::Duration next) {
  host_.MakeHeartbeat(
      epoch_, [this, number = session_number_, next](SessionHost::Heartbeat heartbeat) {
        if (number != session_number_ || session_ == nullptr || leaving_) return;
        v1::WorkerSessionRequest request;
        *request.mutable_heartbeat() = std::move(heartbeat);
        session_->Send(std::move(request));
        timer_ = loop_.RunAfter(next, [this] { SendHeartbeat(heartbeat_interval_); });
      });
}

void SessionAgent::OnEnd(uint64_t session, const absl::Status& status) {
  if (session != session_number_ || session_ == nullptr) return;
  loop_.Cancel(timer_);
  session_ = nullptr;
  const std::optional<absl::Duration> push_back = PushBackOf(status);
  if (!push_back.has_value()) {
    route_.Ended(controller_,
                 status.ok() ? absl::UnavailableError("the session has ended") : status);
  }
  const bool was_registered = registered_;
  SetRegistered(false);
  if (leaving_) {
    if (left_) std::exchange(left_, nullptr)();
    return;
  }
  if (!was_registered && absl::IsFailedPrecondition(status)) speaks_oldest_ = !speaks_oldest_;
  // Where the controller has given this worker a time of its own, no chance may shift it.
  const absl::Duration pause = push_back.has_value() ? *push_back : backoff_.Next();
  if (!was_registered && GivesUp(status, pause)) {
    LogError("worker_refused",
             {{"worker_id", options_.registration.worker()},
              {"status", status.ToString(absl::StatusToStringMode::kWithNoExtraData)}});
    host_.OnRefused(status);
    return;
  }
  // One that stands by has ended no session, and yet sends the worker to another one.
  if (was_registered || IsNotLeader(status)) metrics_.SessionReconnect(ReasonOf(status));
  LogWarning("worker_session_ended",
             {{"worker_id", options_.registration.worker()},
              {"was_registered", was_registered},
              {"status", status.ToString(absl::StatusToStringMode::kWithNoExtraData)},
              {"retry_seconds", absl::ToDoubleSeconds(pause)}});
  timer_ = loop_.RunAfter(pause, [this] { Connect(); });
}

bool SessionAgent::GivesUp(const absl::Status& status, absl::Duration pause) {
  std::optional<absl::Duration> refused_max;
  if (absl::IsAlreadyExists(status)) refused_max = options_.refused_max;
  if (absl::IsFailedPrecondition(status)) refused_max = options_.version_refused_max;
  refused_for_ = refused_max.has_value() ? refused_for_ + pause : absl::ZeroDuration();
  return refused_max.has_value() && refused_for_ > *refused_max;
}

void SessionAgent::Leave(absl::AnyInvocable<void()> left) {
  leaving_ = true;
  loop_.Cancel(timer_);
  if (session_ == nullptr) {
    left();
    return;
  }
  left_ = std::move(left);
  v1::WorkerSessionRequest request;
  request.mutable_leave();
  session_->Send(std::move(request));
  // The controller is to end the call; if it does not, BreakOff does.
  session_->CloseWrites();
}

void SessionAgent::BreakOff() {
  if (session_ != nullptr) session_->Cancel();
}

void SessionAgent::SetRegistered(bool registered) {
  registered_ = registered;
  metrics_.SetRegistered(registered);
}

}  // namespace crossmesh
