// What both ends read from the messages between a worker and the process of a GPU, which travel as
// they are. Neither end trusts the other: a field is checked where it is acted upon, by these,
// which answer InvalidArgument with its name.

#pragma once

#include "common/base/digest.h"
#include "crossmesh/v1/gpu_process.pb.h"
#include "worker/executor/task.h"
#include "worker/gpu/protocol/tile_place.h"

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// Of bytes: a request with an id, of a kind that is known; a notice of a kind that is known.
absl::StatusOr<v1::GpuRequest> ParseGpuRequest(absl::string_view bytes);
absl::StatusOr<v1::GpuNotice> ParseGpuNotice(absl::string_view bytes);

// "create_arena", for errors and logs.
absl::string_view NameOf(const v1::GpuRequest& request);

absl::Status Malformed(absl::string_view field, absl::string_view expected,
                       absl::string_view found);
// The number must be from `least` on.
absl::Status CheckNumber(absl::string_view field, int64_t number, int64_t least);
// From 1 on.
absl::StatusOr<ArenaId> ParseArena(uint64_t arena);
absl::StatusOr<uint64_t> ParseTicket(uint64_t ticket);
// More than nothing, a day at most.
absl::StatusOr<absl::Duration> ParseLimit(absl::string_view field,
                                          const google::protobuf::Duration& limit);
absl::StatusOr<Digest> ParseDigest(absl::string_view field, const std::string& hex);

v1::GpuStatus ToProto(const absl::Status& status);
// Codes that are none are Unknown.
absl::Status FromProto(const v1::GpuStatus& proto);
// Why something ends: Unknown, too, where no error is given.
absl::Status CauseFromProto(const v1::GpuStatus& proto);

v1::GpuTaskKey ToProto(const TaskKey& key);
TaskKey FromProto(const v1::GpuTaskKey& proto);

v1::GpuRequest::Tiles ToProto(const std::vector<TilePlace>& places);
absl::StatusOr<std::vector<TilePlace>> FromProto(const v1::GpuRequest::Tiles& proto);
// Ascending, apart from each other.
absl::StatusOr<std::vector<TileRange>> RangesOf(const v1::GpuRequest::CopyTiles& copy);

v1::GpuNotice::TaskReport ReportToProto(const TaskReport& report);
absl::StatusOr<TaskReport> ReportFromProto(const v1::GpuNotice::TaskReport& proto);

}  // namespace crossmesh
