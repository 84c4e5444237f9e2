#include "worker/gpu/process/gpu_connection.h"

#include "common/base/status_macros.h"
#include "worker/gpu/protocol/gpu_message_codec.h"

#include <utility>
#include <variant>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::StatusOr<std::unique_ptr<GpuConnection>> GpuConnection::Create(EventLoop& loop,
                                                                     UniqueFd socket,
                                                                     Options options,
                                                                     Listener& listener) {
  auto connection = absl::WrapUnique(new GpuConnection(loop, std::move(options), listener));
  ASSIGN_OR_RETURN(connection->socket_, MessageSocket::Create(std::move(socket), *connection));
  loop.AddSource(*connection->socket_);
  connection->next_ping_ =
      loop.RunAfter(connection->options_.start_limit, [raw = connection.get()] {
        raw->Lose(absl::DeadlineExceededError(absl::StrCat(
            "it did not begin within ", absl::FormatDuration(raw->options_.start_limit))));
      });
  return connection;
}

GpuConnection::GpuConnection(EventLoop& loop, Options options, Listener& listener)
    : loop_(loop), options_(std::move(options)), listener_(listener) {}

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

void GpuConnection::Call(GpuRequest::Body body, UniqueFd descriptor, absl::Duration limit,
                         Done done) {
  const uint64_t id = ++last_id_;
  const absl::string_view name = NameOf(body);
  const Expected expected = ExpectedOf(body);
  const absl::Status sent =
      is_over_ ? absl::UnavailableError("it is lost")
               : socket_->Send(Encode(GpuRequest{.id = id, .body = std::move(body)}),
                               std::move(descriptor));
  if (!sent.ok()) {
    loop_.Post([status = About(sent), done = std::move(done)]() mutable { done(status); });
    return;
  }
  const TimerId late = loop_.RunAfter(limit, [this, name, limit] {
    Lose(absl::DeadlineExceededError(
        absl::StrCat("it did not answer ", name, " within ", absl::FormatDuration(limit))));
  });
  calls_.emplace(
      id, OpenCall{.name = name, .expected = expected, .limit = late, .done = std::move(done)});
}

GpuConnection::Expected GpuConnection::ExpectedOf(const GpuRequest::Body& body) {
  using Result = GpuNotice::Answer::Result;
  if (std::holds_alternative<GpuRequest::CreateArena>(body)) return {.descriptor = true};
  if (std::holds_alternative<GpuRequest::MintCommunicatorId>(body)) {
    return {.result = Result(GpuNotice::MintedId()).index()};
  }
  if (std::holds_alternative<GpuRequest::CreateCommunicator>(body)) {
    return {.result = Result(GpuNotice::CommunicatorBytes()).index()};
  }
  if (std::holds_alternative<GpuRequest::RunTask>(body)) {
    return {.result = Result(TaskReport()).index()};
  }
  return {};
}

void GpuConnection::OnMessage(std::string bytes, UniqueFd descriptor) {
  if (is_over_) return;
  absl::StatusOr<GpuNotice> notice = DecodeGpuNotice(bytes);
  const absl::Status status =
      notice.ok() ? Handle(*std::move(notice), std::move(descriptor)) : notice.status();
  if (!status.ok()) Lose(status);
}

void GpuConnection::OnClosed(const absl::Status& why) { Lose(why); }

absl::Status GpuConnection::Handle(GpuNotice notice, UniqueFd descriptor) {
  if (const auto* words = std::get_if<GpuNotice::LastWords>(&notice.body)) {
    return words->cause;
  }
  if (const auto* hello = std::get_if<GpuNotice::Hello>(&notice.body)) return On(*hello);
  if (!has_hello_) {
    return absl::InvalidArgumentError("its first notice: expected a hello, found another");
  }
  if (auto* answer = std::get_if<GpuNotice::Answer>(&notice.body)) {
    return On(*answer, std::move(descriptor));
  }
  if (const auto* progress = std::get_if<GpuNotice::TaskProgress>(&notice.body)) {
    listener_.OnTaskProgress(*progress);
  } else if (const auto* lost = std::get_if<GpuNotice::CommunicatorLost>(&notice.body)) {
    listener_.OnCommunicatorLost(*lost);
  }
  return absl::OkStatus();
}

absl::Status GpuConnection::On(const GpuNotice::Hello& hello) {
  if (std::exchange(has_hello_, true)) {
    return absl::InvalidArgumentError("expected one hello, found a second one");
  }
  if (hello.protocol != kGpuProtocol) {
    return absl::FailedPreconditionError(
        absl::StrCat("its protocol: expected version ", kGpuProtocol, ", found ", hello.protocol));
  }
  if (hello.preflight.rank != options_.rank) {
    return absl::InvalidArgumentError(absl::StrCat("its hello: expected ", options_.rank.ToString(),
                                                   ", found ", hello.preflight.rank.ToString()));
  }
  loop_.Cancel(next_ping_);
  Ping();
  listener_.OnHello(hello.preflight);
  return absl::OkStatus();
}

absl::Status GpuConnection::On(GpuNotice::Answer& answer, UniqueFd descriptor) {
  const auto found = calls_.find(answer.request);
  if (found == calls_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("an answer to request ", answer.request, ", which is not open"));
  }
  const Expected& expected = found->second.expected;
  if (answer.status.ok() &&
      (answer.result.index() != expected.result || descriptor.valid() != expected.descriptor)) {
    return absl::InvalidArgumentError(
        absl::StrCat("an answer to ", found->second.name, ": expected result ", expected.result,
                     expected.descriptor ? " with" : " without", " a descriptor, found result ",
                     answer.result.index(), descriptor.valid() ? " with" : " without", " one"));
  }
  OpenCall call = std::move(found->second);
  calls_.erase(found);
  loop_.Cancel(call.limit);
  if (answer.status.ok()) {
    call.done(Reply{.result = std::move(answer.result), .descriptor = std::move(descriptor)});
  } else {
    call.done(About(answer.status));
  }
  return absl::OkStatus();
}

void GpuConnection::Ping() {
  Call(GpuRequest::Ping(), UniqueFd(), options_.ping_limit, [this](const auto& /*reply*/) {
    if (!is_over_) next_ping_ = loop_.RunAfter(options_.ping_interval, [this] { Ping(); });
  });
}

void GpuConnection::Lose(const absl::Status& why) {
  if (is_over_) return;
  std::map<uint64_t, OpenCall> calls = std::exchange(calls_, {});
  for (const auto& [id, call] : calls) loop_.Cancel(call.limit);
  Close();
  const absl::Status lost = About(absl::UnavailableError(why.message()));
  for (auto& [id, call] : calls) call.done(lost);
  listener_.OnLost(why);
}

absl::Status GpuConnection::About(const absl::Status& status) const {
  return absl::Status(
      status.code(), absl::StrCat("process of ", options_.rank.ToString(), ": ", status.message()));
}

}  // namespace crossmesh
