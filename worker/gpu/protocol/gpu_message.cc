#include "worker/gpu/protocol/gpu_message.h"

#include "common/base/status_macros.h"
#include "common/wire/status_code.h"
#include "common/wire/time_codec.h"
#include "worker/wire/task_report_codec.h"

#include <limits>
#include <optional>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr DurationRange kLimits = {absl::Nanoseconds(1), absl::Hours(24)};

// `what` is "a request" or "a notice".
template <typename Message>
absl::StatusOr<Message> Parse(absl::string_view bytes, absl::string_view what) {
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Malformed("all", what, absl::StrCat(bytes.size(), " bytes of something else"));
  }
  if (message.body_case() == Message::BODY_NOT_SET) {
    return Malformed("body", what, "none that is known");
  }
  return message;
}

absl::Status CheckFromOne(absl::string_view field, uint64_t number) {
  return number > 0 ? absl::OkStatus() : Malformed(field, "a number from 1 on", "0");
}

}  // namespace

absl::StatusOr<v1::GpuRequest> ParseGpuRequest(absl::string_view bytes) {
  ASSIGN_OR_RETURN(v1::GpuRequest request, Parse<v1::GpuRequest>(bytes, "a request"));
  RETURN_IF_ERROR(CheckFromOne("id", request.id()));
  return request;
}

absl::StatusOr<v1::GpuNotice> ParseGpuNotice(absl::string_view bytes) {
  return Parse<v1::GpuNotice>(bytes, "a notice");
}

absl::string_view NameOf(const v1::GpuRequest& request) {
  const auto* const body = v1::GpuRequest::descriptor()->FindFieldByNumber(request.body_case());
  return body == nullptr ? "nothing" : absl::string_view(body->name());
}

absl::Status Malformed(absl::string_view field, absl::string_view expected,
                       absl::string_view found) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " of a GPU message: expected ", expected, ", found ", found));
}

absl::Status CheckNumber(absl::string_view field, int64_t number, int64_t least) {
  if (number >= least) return absl::OkStatus();
  return Malformed(field, absl::StrCat("at least ", least), absl::StrCat(number));
}

absl::StatusOr<ArenaId> ParseArena(uint64_t arena) {
  RETURN_IF_ERROR(CheckFromOne("arena", arena));
  return ArenaId(arena);
}

absl::StatusOr<uint64_t> ParseTicket(uint64_t ticket) {
  RETURN_IF_ERROR(CheckFromOne("ticket", ticket));
  return ticket;
}

absl::StatusOr<absl::Duration> ParseLimit(absl::string_view field,
                                          const google::protobuf::Duration& limit) {
  return DurationIn(limit, kLimits, field);
}

absl::StatusOr<Digest> ParseDigest(absl::string_view field, const std::string& hex) {
  const std::optional<Digest> digest = Digest::Parse(hex);
  if (digest.has_value()) return *digest;
  return Malformed(field, "32 hexadecimal digits",
                   absl::StrCat(hex.size(), " bytes of something else"));
}

v1::GpuStatus ToProto(const absl::Status& status) {
  v1::GpuStatus proto;
  proto.set_code(static_cast<int>(status.code()));
  proto.set_message(std::string(status.message()));
  return proto;
}

absl::Status FromProto(const v1::GpuStatus& proto) {
  return StatusFromCode(proto.code(), proto.message());
}

absl::Status CauseFromProto(const v1::GpuStatus& proto) {
  absl::Status cause = FromProto(proto);
  return cause.ok() ? absl::UnknownError("no cause was given") : cause;
}

v1::GpuTaskKey ToProto(const TaskKey& key) {
  v1::GpuTaskKey proto;
  proto.set_operation(key.operation);
  proto.set_epoch(key.epoch);
  proto.set_plan(key.plan);
  proto.set_instance(key.instance);
  return proto;
}

TaskKey FromProto(const v1::GpuTaskKey& proto) {
  return {.operation = proto.operation(),
          .epoch = proto.epoch(),
          .plan = proto.plan(),
          .instance = proto.instance()};
}

v1::GpuRequest::Tiles ToProto(const std::vector<TilePlace>& places) {
  v1::GpuRequest::Tiles proto;
  for (const TilePlace& place : places) {
    proto.add_arena(place.arena.value());
    proto.add_offset_bytes(place.offset);
  }
  return proto;
}

absl::StatusOr<std::vector<TilePlace>> FromProto(const v1::GpuRequest::Tiles& proto) {
  if (proto.arena_size() != proto.offset_bytes_size()) {
    return Malformed("tiles", absl::StrCat(proto.arena_size(), " offsets, as of arenas"),
                     absl::StrCat(proto.offset_bytes_size()));
  }
  std::vector<TilePlace> places;
  for (int i = 0; i < proto.arena_size(); ++i) {
    RETURN_IF_ERROR(CheckNumber("tiles.offset_bytes", proto.offset_bytes(i), 0));
    places.push_back({.arena = ArenaId(proto.arena(i)), .offset = proto.offset_bytes(i)});
  }
  return places;
}

absl::StatusOr<std::vector<TileRange>> RangesOf(const v1::GpuRequest::CopyTiles& copy) {
  std::vector<TileRange> ranges;
  int64_t end = 0;
  for (const v1::GpuRequest::CopyTiles::Range& range : copy.ranges()) {
    // From the end of the one before it: so they are ascending, and apart from each other.
    RETURN_IF_ERROR(CheckNumber("copy_tiles.ranges.offset_bytes", range.offset_bytes(), end));
    RETURN_IF_ERROR(CheckNumber("copy_tiles.ranges.size_bytes", range.size_bytes(), 1));
    // What is left of the numbers, so that an end is one.
    if (range.size_bytes() > std::numeric_limits<int64_t>::max() - range.offset_bytes()) {
      return Malformed("copy_tiles.ranges.size_bytes", "an end below 2^63",
                       absl::StrCat(range.size_bytes()));
    }
    ranges.push_back({.offset = range.offset_bytes(), .bytes = range.size_bytes()});
    end = ranges.back().end();
  }
  return ranges;
}

v1::GpuNotice::TaskReport ReportToProto(const TaskReport& report) {
  v1::GpuNotice::TaskReport proto;
  *proto.mutable_key() = ToProto(report.key);
  *proto.mutable_report() = ToProto(report);
  for (const DeviceReport& device : report.devices) *proto.add_devices() = ToProto(device);
  return proto;
}

absl::StatusOr<TaskReport> ReportFromProto(const v1::GpuNotice::TaskReport& proto) {
  TaskReport report = FromProto(proto.report());
  report.key = FromProto(proto.key());
  for (const v1::ExecuteResponse::DeviceDone& device : proto.devices()) {
    ASSIGN_OR_RETURN(report.devices.emplace_back(), FromProto(device));
  }
  return report;
}

}  // namespace crossmesh
