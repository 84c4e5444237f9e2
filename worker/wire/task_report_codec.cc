#include "worker/wire/task_report_codec.h"

#include "common/base/digest.h"
#include "common/mesh/utf8.h"
#include "common/wire/status_code.h"

#include <cstdint>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

v1::ExecuteResponse::DeviceDone ToProto(const DeviceReport& report) {
  v1::ExecuteResponse::DeviceDone proto;
  proto.set_device(report.device);
  proto.set_code(static_cast<int32_t>(report.status.code()));
  proto.set_message(ReplaceInvalidUtf8(report.status.message()));
  proto.set_size_bytes(report.bytes);
  proto.set_digest(report.digest.ToString());
  return proto;
}

absl::StatusOr<DeviceReport> FromProto(const v1::ExecuteResponse::DeviceDone& proto) {
  if (proto.size_bytes() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("size_bytes of device ", proto.device(),
                                                   ": expected at least 0, found ",
                                                   proto.size_bytes()));
  }
  const std::optional<Digest> digest = Digest::Parse(proto.digest());
  if (!digest.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "digest of device ", proto.device(), ": expected 32 hexadecimal digits, found ",
        proto.digest().size(), " bytes of something else"));
  }
  return DeviceReport{.device = proto.device(),
                      .status = StatusFromCode(proto.code(), proto.message()),
                      .bytes = proto.size_bytes(),
                      .digest = *digest};
}

v1::TaskReport ToProto(const TaskReport& report) {
  v1::TaskReport proto;
  proto.set_code(static_cast<int32_t>(report.status.code()));
  proto.set_message(ReplaceInvalidUtf8(report.status.message()));
  proto.mutable_lost_peers()->Assign(report.lost_peers.begin(), report.lost_peers.end());
  proto.set_sent_bytes(report.sent_bytes);
  proto.set_received_bytes(report.received_bytes);
  proto.set_copied_bytes(report.copied_bytes);
  proto.set_bind_seconds(report.seconds.bind);
  proto.set_move_seconds(report.seconds.move);
  proto.set_pack_seconds(report.seconds.pack);
  proto.set_unpack_seconds(report.seconds.unpack);
  proto.set_checksum_seconds(report.seconds.checksum);
  for (const LinkReport& link : report.links) {
    v1::TaskReport::Link& added = *proto.add_links();
    added.set_peer(link.peer);
    added.set_sent_bytes(link.sent_bytes);
    added.set_busy_seconds(link.busy_seconds);
  }
  proto.mutable_broken_devices()->Add(report.broken_devices.begin(), report.broken_devices.end());
  for (const std::string& library : report.gpu_libraries) {
    proto.add_gpu_libraries(ReplaceInvalidUtf8(library));
  }
  return proto;
}

TaskReport FromProto(const v1::TaskReport& proto) {
  TaskReport report = {.status = StatusFromCode(proto.code(), proto.message()),
                       .lost_peers = {proto.lost_peers().begin(), proto.lost_peers().end()},
                       .sent_bytes = proto.sent_bytes(),
                       .received_bytes = proto.received_bytes(),
                       .copied_bytes = proto.copied_bytes(),
                       .seconds = {.bind = proto.bind_seconds(),
                                   .move = proto.move_seconds(),
                                   .pack = proto.pack_seconds(),
                                   .unpack = proto.unpack_seconds(),
                                   .checksum = proto.checksum_seconds()}};
  for (const v1::TaskReport::Link& link : proto.links()) {
    report.links.push_back({.peer = link.peer(),
                            .sent_bytes = link.sent_bytes(),
                            .busy_seconds = link.busy_seconds()});
  }
  report.broken_devices.assign(proto.broken_devices().begin(), proto.broken_devices().end());
  report.gpu_libraries.assign(proto.gpu_libraries().begin(), proto.gpu_libraries().end());
  return report;
}

}  // namespace crossmesh
