#include "worker/gpu/process/gpu_connection.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/wire/communicator_codec.h"
#include "worker/gpu/protocol/gpu_message.h"
#include "worker/gpu/protocol/gpu_protocol.h"

#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// "result communicator_id with a descriptor"
std::string DescribeResult(v1::GpuNotice::Answer::ResultCase result, bool has_descriptor) {
  const auto* const field = v1::GpuNotice::Answer::descriptor()->FindFieldByNumber(result);
  return absl::StrCat("result ", field == nullptr ? "none" : field->name(),
                      has_descriptor ? " with" : " without", " a descriptor");
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuConnection>> GpuConnection::Create(EventLoop& loop,
                                                                     UniqueFd socket,
                                                                     Options options,
                                                                     Handlers handlers) {
  auto connection =
      absl::WrapUnique(new GpuConnection(loop, std::move(options), std::move(handlers)));
  GpuConnection* const raw = connection.get();
  ASSIGN_OR_RETURN(
      raw->socket_,
      MessageSocket::Create(std::move(socket),
                            {.on_message =
                                 [raw](const std::string& bytes, UniqueFd descriptor) {
                                   raw->OnMessage(bytes, std::move(descriptor));
                                 },
                             .on_closed = [raw](const absl::Status& why) { raw->Lose(why); }}));
  loop.AddSource(*raw->socket_);
  raw->next_ping_ = loop.RunAfter(raw->options_.start_limit, [raw] {
    raw->Lose(absl::DeadlineExceededError(
        absl::StrCat("it did not begin within ", absl::FormatDuration(raw->options_.start_limit))));
  });
  return connection;
}

GpuConnection::GpuConnection(EventLoop& loop, Options options, Handlers handlers)
    : loop_(loop), options_(std::move(options)), handlers_(std::move(handlers)) {}

GpuConnection::~GpuConnection() {
  if (socket_ == nullptr) return;
  Close();
  loop_.RemoveSource(*socket_);
}

void GpuConnection::Close() {
  is_over_ = true;
  socket_->Close();
  loop_.Cancel(next_ping_);
  for (const auto& [id, call] : calls_) loop_.Cancel(call.limit);
  calls_.clear();
}

void GpuConnection::Call(v1::GpuRequest request, UniqueFd descriptor, absl::Duration limit,
                         Callbacks callbacks) {
  request.set_id(++last_id_);
  const absl::Status sent = is_over_
                                ? absl::UnavailableError("it is lost")
                                : socket_->Send(request.SerializeAsString(), std::move(descriptor));
  if (!sent.ok()) {
    // Posted, since no call hears of its end from inside.
    loop_.Post(
        [status = About(sent), done = std::move(callbacks.done)]() mutable { done(status); });
    return;
  }
  const absl::string_view name = NameOf(request);
  const TimerId late = loop_.RunAfter(limit, [this, name, limit] {
    Lose(absl::DeadlineExceededError(
        absl::StrCat("it did not answer ", name, " within ", absl::FormatDuration(limit))));
  });
  calls_.emplace(request.id(), OpenCall{.name = name,
                                        .expected = ExpectedOf(request),
                                        .limit = late,
                                        .callbacks = std::move(callbacks)});
}

GpuConnection::Expected GpuConnection::ExpectedOf(const v1::GpuRequest& request) {
  if (request.has_create_arena()) return {.descriptor = true};
  if (request.has_mint_communicator_id()) return {.result = v1::GpuNotice::Answer::kMinted};
  if (request.has_create_communicator()) return {.result = v1::GpuNotice::Answer::kCreated};
  if (request.has_get_preflight()) return {.result = v1::GpuNotice::Answer::kPreflight};
  if (request.has_measure_gpu()) return {.result = v1::GpuNotice::Answer::kMeasured};
  if (request.has_run_task()) {
    // Once: a process that has been given the part cannot ask for it for ever.
    return {.result = v1::GpuNotice::Answer::kReport,
            .need_part = request.run_task().part().empty()};
  }
  return {};
}

void GpuConnection::OnMessage(absl::string_view bytes, UniqueFd descriptor) {
  if (is_over_) return;
  absl::StatusOr<v1::GpuNotice> notice = ParseGpuNotice(bytes);
  const absl::Status status =
      notice.ok() ? Handle(*std::move(notice), std::move(descriptor)) : notice.status();
  if (!status.ok()) Lose(status);
}

absl::Status GpuConnection::Handle(v1::GpuNotice notice, UniqueFd descriptor) {
  // These may come in the place of a hello: then they say why there will be none.
  if (notice.has_last_words()) return CauseFromProto(notice.last_words().cause());
  if (notice.has_hello()) return OnHello(notice.hello());
  if (!has_hello_) {
    return absl::InvalidArgumentError("its first notice: expected a hello, found another");
  }
  if (notice.has_answer()) {
    return OnAnswer(std::move(*notice.mutable_answer()), std::move(descriptor));
  }
  if (notice.has_task_progress()) return OnProgress(notice.task_progress());
  return OnCommunicatorLost(notice.communicator_lost());
}

absl::Status GpuConnection::OnHello(const v1::GpuNotice::Hello& hello) {
  if (std::exchange(has_hello_, true)) {
    return absl::InvalidArgumentError("expected one hello, found a second one");
  }
  if (hello.protocol() != kGpuProtocol) {
    return absl::FailedPreconditionError(absl::StrCat("its protocol: expected version ",
                                                      kGpuProtocol, ", found ", hello.protocol()));
  }
  ASSIGN_OR_RETURN(const PreflightReport preflight, FromProto(hello.preflight()));
  if (preflight.rank != options_.rank) {
    return absl::InvalidArgumentError(absl::StrCat("its hello: expected ", options_.rank.ToString(),
                                                   ", found ", preflight.rank.ToString()));
  }
  loop_.Cancel(next_ping_);
  Ping();
  handlers_.on_hello(preflight, hello);
  return absl::OkStatus();
}

absl::Status GpuConnection::OnAnswer(v1::GpuNotice::Answer answer, UniqueFd descriptor) {
  const auto found = calls_.find(answer.request());
  if (found == calls_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("an answer to request ", answer.request(), ", which is not open"));
  }
  const absl::Status status = FromProto(answer.status());
  const Expected& expected = found->second.expected;
  const bool is_result =
      answer.result_case() == expected.result || (expected.need_part && answer.has_need_part());
  // So that callers need not look whether what they read is there. The call stays open, and ends
  // with all others when the process is lost because of this.
  if (status.ok() && (!is_result || descriptor.valid() != expected.descriptor)) {
    return absl::InvalidArgumentError(
        absl::StrCat("an answer to ", found->second.name, ": expected ",
                     DescribeResult(expected.result, expected.descriptor), ", found ",
                     DescribeResult(answer.result_case(), descriptor.valid())));
  }
  OpenCall call = std::move(found->second);
  calls_.erase(found);
  loop_.Cancel(call.limit);
  if (status.ok()) {
    call.callbacks.done(Reply{.answer = std::move(answer), .descriptor = std::move(descriptor)});
  } else {
    call.callbacks.done(About(status));
  }
  return absl::OkStatus();
}

absl::Status GpuConnection::OnProgress(const v1::GpuNotice::TaskProgress& progress) {
  RETURN_IF_ERROR(CheckNumber("task_progress.moved_bytes", progress.moved_bytes(), 0));
  const auto found = calls_.find(progress.request());
  if (found == calls_.end() || found->second.callbacks.progress == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("progress of request ", progress.request(), ", which is no task that runs"));
  }
  found->second.callbacks.progress(progress.moved_bytes());
  return absl::OkStatus();
}

absl::Status GpuConnection::OnCommunicatorLost(const v1::GpuNotice::CommunicatorLost& lost) {
  ASSIGN_OR_RETURN(const CommunicatorKey key, FromProto(lost.key()));
  handlers_.on_communicator_lost(key, CauseFromProto(lost.cause()));
  return absl::OkStatus();
}

void GpuConnection::Ping() {
  v1::GpuRequest ping;
  ping.mutable_ping();
  const auto again = [this](const absl::StatusOr<Reply>& /*reply*/) {
    if (!is_over_) next_ping_ = loop_.RunAfter(options_.ping_interval, [this] { Ping(); });
  };
  Call(std::move(ping), UniqueFd(), options_.ping_limit, {.done = again});
}

void GpuConnection::Lose(const absl::Status& why) {
  if (is_over_) return;
  std::map<uint64_t, OpenCall> calls = std::exchange(calls_, {});
  for (const auto& [id, call] : calls) loop_.Cancel(call.limit);
  // Closed before they hear of it: a call that one of them makes in answer finds it lost.
  Close();
  const absl::Status lost = About(absl::UnavailableError(why.message()));
  for (auto& [id, call] : calls) call.callbacks.done(lost);
  handlers_.on_lost(why);
}

absl::Status GpuConnection::About(const absl::Status& status) const {
  return At(absl::StrCat("process of ", options_.rank.ToString()), status);
}

}  // namespace crossmesh
