#pragma once

#include "client/outcome.h"
#include "client/pause.h"
#include "common/base/backoff.h"
#include "common/base/clock.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status_codec.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

namespace crossmesh {

struct FollowerOptions {
  std::string noun;     // what is followed, for people
  std::string address;  // of the controller
  // How long to try again when nothing is heard.
  absl::Duration follow_for;
  // How long to follow in all.
  absl::Duration timeout;
  Backoff backoff;  // between streams
};

// The first message of a stream, of which the rest is not read: what it is about goes on. Errors
// are the stream's; Unavailable when it ended without a message.
template <typename Message>
absl::StatusOr<Message> ReadFirst(grpc::ClientContext& context,
                                  std::unique_ptr<grpc::ClientReader<Message>> reader) {
  Message first;
  const bool found = reader->Read(&first);
  if (found) context.TryCancel();
  const absl::Status status = FromGrpcStatus(reader->Finish());
  if (found) return first;
  return status.ok() ? absl::UnavailableError("the stream ended before it said anything") : status;
}

// Follows one thing that the controller does, an operation or a pipeline's run, to its end over as
// many streams as it takes. Thread-compatible.
template <typename Subject>
class Follower {
 public:
  using OnChange = absl::FunctionRef<void(const Subject&)>;
  using Open = absl::FunctionRef<absl::Status(grpc::ClientContext&)>;
  using Watch = absl::FunctionRef<absl::Status(grpc::ClientContext&, const std::string& id)>;

  Follower(FollowerOptions options, OnChange on_change)
      : options_(std::move(options)), on_change_(on_change), backoff_(options_.backoff) {}

  // Reads a stream to its end; `subject_of` gives what a message is about.
  template <typename Message>
  absl::Status Read(std::unique_ptr<grpc::ClientReader<Message>> reader,
                    Subject* (Message::*subject_of)()) {
    Message message;
    while (reader->Read(&message)) {
      subject_ = std::move(*(message.*subject_of)());
      heard_ = true;
      on_change_(subject_);
    }
    return FromGrpcStatus(reader->Finish());
  }

  // Each reads one stream: `open` while the id is unknown, `watch` then. Returns the subject as it
  // ended. Errors: of a request that was refused; Unavailable when the controller stays away;
  // DeadlineExceeded when the subject has not ended within the time for all.
  absl::StatusOr<Subject> Follow(Open open, Watch watch, const std::string& id) {
    subject_.set_id(id);
    absl::Duration until = clock_.Monotonic() + options_.follow_for;
    const absl::Duration end = clock_.Monotonic() + options_.timeout;
    while (true) {
      const absl::Duration left = end - clock_.Monotonic();
      if (left <= absl::ZeroDuration()) return TimedOut();
      grpc::ClientContext context;
      SetDeadline(context, std::min(left, kRpcDeadlineMax));
      heard_ = false;
      const std::string known = subject_.id();
      absl::Status status = known.empty() ? open(context) : watch(context, known);
      if (HasEnded(subject_)) return std::move(subject_);
      // The stream's deadline may be told a little before this clock is there.
      if (absl::IsDeadlineExceeded(status) && end - clock_.Monotonic() < kClockSlack) {
        return TimedOut();
      }
      if (!MayGoOn(status)) return status;
      if (heard_) {
        backoff_.Reset();
        until = clock_.Monotonic() + options_.follow_for;
      }
      const absl::Duration pause = backoff_.Next();
      if (clock_.Monotonic() + pause >= until) return GiveUp(status);
      Pause(std::min(pause, end - clock_.Monotonic()));
    }
  }

 private:
  // A stream may end at any time: with the connection's age, with this reader too slow, with the
  // stream's own deadline.
  bool MayGoOn(const absl::Status& status) const {
    if (status.ok() || absl::IsUnavailable(status) || absl::IsCancelled(status)) return true;
    return heard_ && (absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status));
  }

  // What of the subject is known, for the end of a message.
  std::string MayStillRun() const {
    if (subject_.id().empty()) return "";
    return absl::StrCat("; ", options_.noun, " ", subject_.id(), " may still be running");
  }

  absl::Status TimedOut() const {
    return absl::DeadlineExceededError(
        absl::StrCat("controller ", options_.address, ": expected the ", options_.noun,
                     "'s end within ", absl::FormatDuration(options_.timeout), MayStillRun()));
  }

  absl::Status GiveUp(const absl::Status& status) const {
    const std::string reason = status.ok()
                                   ? absl::StrCat("the stream ended before the ", options_.noun)
                                   : std::string(status.message());
    return absl::UnavailableError(
        absl::StrCat("controller ", options_.address, ": ", reason, MayStillRun()));
  }

  static constexpr absl::Duration kClockSlack = absl::Milliseconds(50);

  const FollowerOptions options_;
  const OnChange on_change_;
  const RealClock clock_;
  Backoff backoff_;
  Subject subject_;
  bool heard_ = false;  // on the present stream
};

}  // namespace crossmesh
