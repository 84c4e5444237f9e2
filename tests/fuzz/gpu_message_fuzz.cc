// Messages between a worker and the process of a GPU, neither of which trusts the other.

#include "common/base/check.h"
#include "common/wire/communicator_codec.h"
#include "tests/fuzz/fuzz_input.h"
#include "worker/gpu/protocol/gpu_message.h"

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {
namespace {

// What is read of a field means the same when it is written and read again.

void CheckTiles(const v1::GpuRequest::Tiles& proto) {
  const absl::StatusOr<std::vector<TilePlace>> places = FromProto(proto);
  if (places.ok()) CHECK(FromProto(ToProto(*places)).value() == *places);
}

void CheckRanges(const v1::GpuRequest::CopyTiles& copy) {
  const absl::StatusOr<std::vector<TileRange>> ranges = RangesOf(copy);
  if (!ranges.ok()) return;
  int64_t end = 0;
  for (const TileRange& range : *ranges) {
    CHECK(range.offset >= end && range.end() > range.offset);
    end = range.end();
  }
}

void CheckKey(const v1::CommunicatorKey& proto) {
  const absl::StatusOr<CommunicatorKey> key = FromProto(proto);
  if (key.ok()) CHECK(FromProto(ToProto(*key)).value() == *key);
}

void CheckReport(const v1::GpuNotice::TaskReport& proto) {
  const absl::StatusOr<TaskReport> report = ReportFromProto(proto);
  if (!report.ok()) return;
  const v1::GpuNotice::TaskReport written = ReportToProto(*report);
  CHECK_EQ(ReportToProto(ReportFromProto(written).value()).SerializeAsString(),
           written.SerializeAsString());
}

void CheckRequest(absl::string_view bytes) {
  const absl::StatusOr<v1::GpuRequest> request = ParseGpuRequest(bytes);
  if (!request.ok()) return;
  CHECK(NameOf(*request) != "nothing");
  CheckTiles(request->run_task().sources());
  CheckTiles(request->run_task().destinations());
  CheckKey(request->run_task().communicator());
  CheckKey(request->create_communicator().key());
  CheckRanges(request->copy_tiles());
  CHECK(!CauseFromProto(request->cancel_task().cause()).ok());
  // These only must not end the process.
  static_cast<void>(ParseLimit("timeout", request->create_communicator().timeout()));
  static_cast<void>(ParseDigest("digest", request->run_task().part_digest()));
}

void CheckNotice(absl::string_view bytes) {
  const absl::StatusOr<v1::GpuNotice> notice = ParseGpuNotice(bytes);
  if (!notice.ok()) return;
  CheckReport(notice->answer().report());
  CheckKey(notice->communicator_lost().key());
  const absl::StatusOr<PreflightReport> preflight = FromProto(notice->hello().preflight());
  if (preflight.ok()) CHECK(FromProto(ToProto(*preflight)).ok());
}

}  // namespace

void FuzzOne(const uint8_t* data, size_t size) {
  CheckRequest(TextOf(data, size));
  CheckNotice(TextOf(data, size));
}

}  // namespace crossmesh
