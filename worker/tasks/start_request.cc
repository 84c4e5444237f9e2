#include "worker/tasks/start_request.h"

#include "common/base/status_macros.h"
#include "common/wire/call_token.h"
#include "common/wire/communicator_codec.h"
#include "common/wire/time_codec.h"

#include <optional>
#include <tuple>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

constexpr size_t kNameBytesMax = 256;
constexpr DurationRange kDurations = {absl::Nanoseconds(1), StartRequest::kDeadlineMax};

absl::Status CheckText(absl::string_view field, absl::string_view text) {
  if (text.size() <= kNameBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": expected at most ", kNameBytesMax, " bytes, found ", text.size()));
}

absl::StatusOr<Digest> ParsePart(absl::string_view field, absl::string_view text) {
  const std::optional<Digest> part = Digest::Parse(text);
  if (part.has_value()) return *part;
  return absl::InvalidArgumentError(absl::StrCat(field, ": expected 32 hexadecimal digits, found ",
                                                 text.size(), " bytes of something else"));
}

absl::StatusOr<StartRequest::Peer> ParsePeer(const v1::ExecuteRequest::Peer& proto) {
  RETURN_IF_ERROR(CheckText("start.peers.worker", proto.worker()));
  if (proto.data_address().size() > StartRequest::kDataAddressBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "start.peers: data address of worker ", proto.worker(), ": expected at most ",
        StartRequest::kDataAddressBytesMax, " bytes, found ", proto.data_address().size()));
  }
  return StartRequest::Peer{.worker = proto.worker(),
                            .data_address = proto.data_address(),
                            .devices = {proto.devices().begin(), proto.devices().end()}};
}

absl::StatusOr<StartRequest::Communicator> ParseCommunicator(
    const v1::ExecuteRequest::Communicator& proto) {
  StartRequest::Communicator communicator = {
      .devices = {proto.devices().begin(), proto.devices().end()}};
  ASSIGN_OR_RETURN(communicator.key, FromProto(proto.key()));
  if (communicator.devices.size() == communicator.key.ranks.size()) return communicator;
  return absl::InvalidArgumentError(
      absl::StrCat("start.communicators.devices: expected one for each of ",
                   communicator.key.ranks.size(), " ranks, found ", communicator.devices.size()));
}

}  // namespace

std::string StartRequest::Name() const {
  return absl::StrCat("operation ", operation_id, ", attempt ", key.plan);
}

bool StartRequest::SameWork(const StartRequest& other) const {
  const auto work = [](const StartRequest& r) {
    return std::tie(r.key, r.operation_id, r.token_high, r.token_low, r.part, r.source_storage,
                    r.destination_storage, r.create_destination, r.checksums, r.communicators);
  };
  return work(*this) == work(other);
}

absl::StatusOr<StartRequest> FromProto(const v1::ExecuteRequest::Start& start) {
  RETURN_IF_ERROR(CheckText("start.operation_id", start.operation_id()));
  RETURN_IF_ERROR(CheckText("start.source_storage", start.source_storage()));
  RETURN_IF_ERROR(CheckText("start.destination_storage", start.destination_storage()));
  ASSIGN_OR_RETURN(const CallToken token, ParseToken(start.token()));
  ASSIGN_OR_RETURN(const Digest part, ParsePart("start.part_digest", start.part_digest()));
  StartRequest request{
      .key = {.operation = start.operation(), .epoch = start.epoch(), .plan = start.attempt()},
      .operation_id = start.operation_id(),
      .token_high = token.high,
      .token_low = token.low,
      .part = part,
      .source_storage = start.source_storage(),
      .destination_storage = start.destination_storage(),
      .create_destination = start.create_destination(),
      .checksums = start.checksums()};
  ASSIGN_OR_RETURN(request.deadline, DurationIn(start.deadline(), kDurations, "start.deadline"));
  ASSIGN_OR_RETURN(request.stall_limit,
                   DurationIn(start.stall_limit(), kDurations, "start.stall_limit"));
  for (const v1::ExecuteRequest::Peer& proto : start.peers()) {
    ASSIGN_OR_RETURN(request.peers.emplace_back(), ParsePeer(proto));
  }
  for (const v1::ExecuteRequest::Communicator& proto : start.communicators()) {
    ASSIGN_OR_RETURN(request.communicators.emplace_back(), ParseCommunicator(proto));
  }
  return request;
}

absl::StatusOr<AdoptRequest> FromProto(const v1::ExecuteRequest::Adopt& adopt) {
  RETURN_IF_ERROR(CheckText("adopt.operation_id", adopt.operation_id()));
  ASSIGN_OR_RETURN(const Digest part, ParsePart("adopt.part_digest", adopt.part_digest()));
  return AdoptRequest{
      .key = {.operation = adopt.operation(), .epoch = adopt.epoch(), .plan = adopt.attempt()},
      .part = part,
      .by_epoch = adopt.by_epoch(),
      .operation_id = adopt.operation_id()};
}

}  // namespace crossmesh
