#include "common/base/status_macros.h"
#include "common/wire/communicator_codec.h"
#include "common/wire/time_codec.h"
#include "worker/gpu/protocol/gpu_message_codec.h"
#include "worker/gpu/protocol/message_fields.h"

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr DurationRange kDurations = {absl::Nanoseconds(1), absl::Hours(24)};

v1::GpuRequest::Tiles TilesToProto(const std::vector<TilePlace>& places) {
  v1::GpuRequest::Tiles proto;
  for (const TilePlace& place : places) {
    proto.add_arena(place.arena.value());
    proto.add_offset_bytes(place.offset);
  }
  return proto;
}

absl::StatusOr<std::vector<TilePlace>> TilesFromProto(const v1::GpuRequest::Tiles& proto) {
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

absl::StatusOr<ArenaId> ParseArena(uint64_t arena) {
  if (arena == 0) return Malformed("arena", "a number from 1 on", "0");
  return ArenaId(arena);
}

absl::StatusOr<uint64_t> ParseTicket(uint64_t ticket) {
  if (ticket == 0) return Malformed("ticket", "a number from 1 on", "0");
  return ticket;
}

// One writer and one reader for each kind of request, next to each other.

void Write(const GpuRequest::CreateArena& body, v1::GpuRequest& proto) {
  proto.mutable_create_arena()->set_arena(body.arena.value());
  proto.mutable_create_arena()->set_size_bytes(body.bytes.value());
}
absl::StatusOr<GpuRequest::Body> Read(const v1::GpuRequest::CreateArena& proto) {
  RETURN_IF_ERROR(CheckNumber("create_arena.size_bytes", proto.size_bytes(), 0));
  ASSIGN_OR_RETURN(const ArenaId arena, ParseArena(proto.arena()));
  return GpuRequest::CreateArena{.arena = arena, .bytes = ByteCount(proto.size_bytes())};
}

void Write(const GpuRequest::ImportArena& body, v1::GpuRequest& proto) {
  proto.mutable_import_arena()->set_arena(body.arena.value());
  proto.mutable_import_arena()->set_size_bytes(body.bytes.value());
}
absl::StatusOr<GpuRequest::Body> Read(const v1::GpuRequest::ImportArena& proto) {
  RETURN_IF_ERROR(CheckNumber("import_arena.size_bytes", proto.size_bytes(), 0));
  ASSIGN_OR_RETURN(const ArenaId arena, ParseArena(proto.arena()));
  return GpuRequest::ImportArena{.arena = arena, .bytes = ByteCount(proto.size_bytes())};
}

void Write(const GpuRequest::ReleaseArena& body, v1::GpuRequest& proto) {
  proto.mutable_release_arena()->set_arena(body.arena.value());
}
absl::StatusOr<GpuRequest::Body> Read(const v1::GpuRequest::ReleaseArena& proto) {
  ASSIGN_OR_RETURN(const ArenaId arena, ParseArena(proto.arena()));
  return GpuRequest::ReleaseArena{.arena = arena};
}

void Write(const GpuRequest::MintCommunicatorId& /*body*/, v1::GpuRequest& proto) {
  proto.mutable_mint_communicator_id();
}
absl::StatusOr<GpuRequest::Body> Read(const v1::GpuRequest::MintCommunicatorId& /*proto*/) {
  return GpuRequest::MintCommunicatorId();
}

void Write(const GpuRequest::CreateCommunicator& body, v1::GpuRequest& proto) {
  v1::GpuRequest::CreateCommunicator& create = *proto.mutable_create_communicator();
  *create.mutable_key() = ToProto(body.key);
  create.set_ticket(body.ticket);
  create.set_id(body.id);
  *create.mutable_timeout() = ToProto(body.timeout);
}
absl::StatusOr<GpuRequest::Body> Read(const v1::GpuRequest::CreateCommunicator& proto) {
  GpuRequest::CreateCommunicator body = {.id = proto.id()};
  ASSIGN_OR_RETURN(body.key, FromProto(proto.key()));
  ASSIGN_OR_RETURN(body.ticket, ParseTicket(proto.ticket()));
  ASSIGN_OR_RETURN(body.timeout,
                   DurationIn(proto.timeout(), kDurations, "create_communicator.timeout"));
  return body;
}

void Write(const GpuRequest::DestroyCommunicator& body, v1::GpuRequest& proto) {
  v1::GpuRequest::DestroyCommunicator& destroy = *proto.mutable_destroy_communicator();
  *destroy.mutable_key() = ToProto(body.key);
  destroy.set_ticket(body.ticket);
  *destroy.mutable_timeout() = ToProto(body.timeout);
}
absl::StatusOr<GpuRequest::Body> Read(const v1::GpuRequest::DestroyCommunicator& proto) {
  GpuRequest::DestroyCommunicator body;
  ASSIGN_OR_RETURN(body.key, FromProto(proto.key()));
  ASSIGN_OR_RETURN(body.ticket, ParseTicket(proto.ticket()));
  ASSIGN_OR_RETURN(body.timeout,
                   DurationIn(proto.timeout(), kDurations, "destroy_communicator.timeout"));
  return body;
}

void Write(const GpuRequest::StopCommunicator& body, v1::GpuRequest& proto) {
  *proto.mutable_stop_communicator()->mutable_key() = ToProto(body.key);
  *proto.mutable_stop_communicator()->mutable_cause() = ToProto(body.cause);
}
absl::StatusOr<GpuRequest::Body> Read(const v1::GpuRequest::StopCommunicator& proto) {
  ASSIGN_OR_RETURN(CommunicatorKey key, FromProto(proto.key()));
  return GpuRequest::StopCommunicator{.key = std::move(key),
                                      .cause = CauseFromProto(proto.cause())};
}

void Write(const GpuRequest::PreparePart& body, v1::GpuRequest& proto) {
  proto.mutable_prepare_part()->set_digest(body.digest.ToString());
  proto.mutable_prepare_part()->set_part(body.part);
}
absl::StatusOr<GpuRequest::Body> Read(const v1::GpuRequest::PreparePart& proto) {
  ASSIGN_OR_RETURN(const Digest digest, ParseDigest("prepare_part.digest", proto.digest()));
  return GpuRequest::PreparePart{.digest = digest, .part = proto.part()};
}

void Write(const GpuRequest::RunTask& body, v1::GpuRequest& proto) {
  v1::GpuRequest::RunTask& run = *proto.mutable_run_task();
  *run.mutable_key() = ToProto(body.key);
  run.set_part_digest(body.part.ToString());
  run.set_checksums(body.checksums);
  *run.mutable_sources() = TilesToProto(body.sources);
  *run.mutable_destinations() = TilesToProto(body.destinations);
  *run.mutable_communicator() = ToProto(body.communicator);
  run.mutable_devices()->Assign(body.devices.begin(), body.devices.end());
  *run.mutable_deadline() = ToProto(body.deadline);
  *run.mutable_stall_limit() = ToProto(body.stall_limit);
}
absl::StatusOr<GpuRequest::Body> Read(const v1::GpuRequest::RunTask& proto) {
  GpuRequest::RunTask body = {.key = FromProto(proto.key()),
                              .checksums = proto.checksums(),
                              .devices = {proto.devices().begin(), proto.devices().end()}};
  ASSIGN_OR_RETURN(body.part, ParseDigest("run_task.part_digest", proto.part_digest()));
  ASSIGN_OR_RETURN(body.sources, TilesFromProto(proto.sources()));
  ASSIGN_OR_RETURN(body.destinations, TilesFromProto(proto.destinations()));
  ASSIGN_OR_RETURN(body.communicator, FromProto(proto.communicator()));
  if (body.devices.size() != body.communicator.ranks.size()) {
    return Malformed("run_task.devices",
                     absl::StrCat(body.communicator.ranks.size(), ", as of the communicator"),
                     absl::StrCat(body.devices.size()));
  }
  ASSIGN_OR_RETURN(body.deadline, DurationIn(proto.deadline(), kDurations, "run_task.deadline"));
  ASSIGN_OR_RETURN(body.stall_limit,
                   DurationIn(proto.stall_limit(), kDurations, "run_task.stall_limit"));
  return body;
}

v1::GpuRequest::CopyTiles::Direction DirectionToProto(GpuRequest::CopyTiles::Direction direction) {
  switch (direction) {
    case GpuRequest::CopyTiles::Direction::kLoad:
      return v1::GpuRequest::CopyTiles::DIRECTION_LOAD;
    case GpuRequest::CopyTiles::Direction::kStore:
      return v1::GpuRequest::CopyTiles::DIRECTION_STORE;
  }
  return v1::GpuRequest::CopyTiles::DIRECTION_UNSPECIFIED;
}
absl::StatusOr<GpuRequest::CopyTiles::Direction> ParseDirection(int direction) {
  if (direction == v1::GpuRequest::CopyTiles::DIRECTION_LOAD) {
    return GpuRequest::CopyTiles::Direction::kLoad;
  }
  if (direction == v1::GpuRequest::CopyTiles::DIRECTION_STORE) {
    return GpuRequest::CopyTiles::Direction::kStore;
  }
  return Malformed("copy_tiles.direction", "a load or a store", absl::StrCat(direction));
}

absl::StatusOr<std::vector<GpuRequest::CopyTiles::Range>> RangesFromProto(
    const v1::GpuRequest::CopyTiles& proto) {
  std::vector<GpuRequest::CopyTiles::Range> ranges;
  int64_t end = 0;
  for (const v1::GpuRequest::CopyTiles::Range& range : proto.ranges()) {
    RETURN_IF_ERROR(CheckNumber("copy_tiles.ranges.offset_bytes", range.offset_bytes(), end));
    RETURN_IF_ERROR(CheckNumber("copy_tiles.ranges.size_bytes", range.size_bytes(), 1));
    if (range.size_bytes() > std::numeric_limits<int64_t>::max() - range.offset_bytes()) {
      return Malformed("copy_tiles.ranges.size_bytes", "an end below 2^63",
                       absl::StrCat(range.size_bytes()));
    }
    ranges.push_back({.offset = range.offset_bytes(), .bytes = range.size_bytes()});
    end = ranges.back().end();
  }
  return ranges;
}

void Write(const GpuRequest::CopyTiles& body, v1::GpuRequest& proto) {
  v1::GpuRequest::CopyTiles& copy = *proto.mutable_copy_tiles();
  *copy.mutable_key() = ToProto(body.key);
  copy.set_direction(DirectionToProto(body.direction));
  copy.set_arena(body.arena.value());
  for (const GpuRequest::CopyTiles::Range& range : body.ranges) {
    v1::GpuRequest::CopyTiles::Range& added = *copy.add_ranges();
    added.set_offset_bytes(range.offset);
    added.set_size_bytes(range.bytes);
  }
  copy.set_checksums(body.checksums);
  *copy.mutable_deadline() = ToProto(body.deadline);
}
absl::StatusOr<GpuRequest::Body> Read(const v1::GpuRequest::CopyTiles& proto) {
  GpuRequest::CopyTiles body = {.key = FromProto(proto.key()), .checksums = proto.checksums()};
  ASSIGN_OR_RETURN(body.direction, ParseDirection(proto.direction()));
  ASSIGN_OR_RETURN(body.arena, ParseArena(proto.arena()));
  ASSIGN_OR_RETURN(body.ranges, RangesFromProto(proto));
  ASSIGN_OR_RETURN(body.deadline, DurationIn(proto.deadline(), kDurations, "copy_tiles.deadline"));
  return body;
}

void Write(const GpuRequest::CancelTask& body, v1::GpuRequest& proto) {
  *proto.mutable_cancel_task()->mutable_key() = ToProto(body.key);
  *proto.mutable_cancel_task()->mutable_cause() = ToProto(body.cause);
}
absl::StatusOr<GpuRequest::Body> Read(const v1::GpuRequest::CancelTask& proto) {
  return GpuRequest::CancelTask{.key = FromProto(proto.key()),
                                .cause = CauseFromProto(proto.cause())};
}

void Write(const GpuRequest::Ping& /*body*/, v1::GpuRequest& proto) { proto.mutable_ping(); }

absl::StatusOr<GpuRequest::Body> ReadBody(const v1::GpuRequest& proto) {
  switch (proto.body_case()) {
    case v1::GpuRequest::kCreateArena:
      return Read(proto.create_arena());
    case v1::GpuRequest::kImportArena:
      return Read(proto.import_arena());
    case v1::GpuRequest::kReleaseArena:
      return Read(proto.release_arena());
    case v1::GpuRequest::kMintCommunicatorId:
      return Read(proto.mint_communicator_id());
    case v1::GpuRequest::kCreateCommunicator:
      return Read(proto.create_communicator());
    case v1::GpuRequest::kDestroyCommunicator:
      return Read(proto.destroy_communicator());
    case v1::GpuRequest::kStopCommunicator:
      return Read(proto.stop_communicator());
    case v1::GpuRequest::kPreparePart:
      return Read(proto.prepare_part());
    case v1::GpuRequest::kRunTask:
      return Read(proto.run_task());
    case v1::GpuRequest::kCopyTiles:
      return Read(proto.copy_tiles());
    case v1::GpuRequest::kCancelTask:
      return Read(proto.cancel_task());
    case v1::GpuRequest::kPing:
      return GpuRequest::Ping();
    case v1::GpuRequest::BODY_NOT_SET:
      break;
  }
  return Malformed("body", "a request", "none that is known");
}

}  // namespace

std::string Encode(const GpuRequest& request) {
  v1::GpuRequest proto;
  proto.set_id(request.id);
  std::visit([&proto](const auto& body) { Write(body, proto); }, request.body);
  return proto.SerializeAsString();
}

absl::StatusOr<GpuRequest> DecodeGpuRequest(absl::string_view bytes) {
  v1::GpuRequest proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Malformed("all", "a request", absl::StrCat(bytes.size(), " bytes of something else"));
  }
  if (proto.id() == 0) return Malformed("id", "a number from 1 on", "0");
  ASSIGN_OR_RETURN(GpuRequest::Body body, ReadBody(proto));
  return GpuRequest{.id = proto.id(), .body = std::move(body)};
}

absl::string_view NameOf(const GpuRequest::Body& body) {
  constexpr absl::string_view kNames[] = {
      "CreateArena",        "ImportArena",        "ReleaseArena",
      "MintCommunicatorId", "CreateCommunicator", "DestroyCommunicator",
      "StopCommunicator",   "PreparePart",        "RunTask",
      "CopyTiles",          "CancelTask",         "Ping"};
  static_assert(std::size(kNames) == std::variant_size_v<GpuRequest::Body>);
  return kNames[body.index()];
}

}  // namespace crossmesh
