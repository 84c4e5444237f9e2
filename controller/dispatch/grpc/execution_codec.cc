#include "controller/dispatch/grpc/execution_codec.h"

#include "common/wire/communicator_codec.h"
#include "common/wire/status_code.h"
#include "common/wire/time_codec.h"

#include <cstdint>
#include <string>

namespace crossmesh {
namespace {

// The data plane's token: both words, high word first, big endian.
std::string TokenBytes(uint64_t high, uint64_t low) {
  std::string bytes;
  for (const uint64_t word : {high, low}) {
    for (int shift = 56; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(word >> shift));
  }
  return bytes;
}

TaskFigures FiguresOf(const v1::ExecuteResponse::Report& report) {
  TaskFigures figures{.sent_bytes = report.sent_bytes(),
                      .received_bytes = report.received_bytes(),
                      .copied_bytes = report.copied_bytes(),
                      .bind_seconds = report.bind_seconds(),
                      .move_seconds = report.move_seconds(),
                      .pack_seconds = report.pack_seconds(),
                      .unpack_seconds = report.unpack_seconds(),
                      .checksum_seconds = report.checksum_seconds()};
  for (const v1::ExecuteResponse::Link& link : report.links()) {
    figures.links.push_back({.peer = link.peer(),
                             .sent_bytes = link.sent_bytes(),
                             .busy_seconds = link.busy_seconds()});
  }
  figures.gpu_libraries.insert(report.gpu_libraries().begin(), report.gpu_libraries().end());
  return figures;
}

}  // namespace

v1::ExecuteRequest StartRequest(const TaskStart& start) {
  v1::ExecuteRequest request;
  v1::ExecuteRequest::Start& out = *request.mutable_start();
  out.set_operation_id(start.operation_id);
  out.set_operation(start.operation);
  out.set_epoch(start.epoch);
  out.set_attempt(start.attempt);
  out.set_token(TokenBytes(start.token_high, start.token_low));
  out.set_part_digest(start.part->digest().ToString());
  out.set_source_storage(start.source_storage);
  out.set_destination_storage(start.destination_storage);
  out.set_create_destination(start.create_destination);
  out.set_checksums(start.checksums);
  for (const TaskStart::Peer& peer : *start.peers) {
    v1::ExecuteRequest::Peer& out_peer = *out.add_peers();
    out_peer.set_worker(peer.worker);
    out_peer.set_data_address(peer.data_address);
    out_peer.mutable_devices()->Add(peer.devices.begin(), peer.devices.end());
  }
  for (const TaskCommunicator& communicator : start.communicators) {
    v1::ExecuteRequest::Communicator& out_communicator = *out.add_communicators();
    *out_communicator.mutable_key() = ToProto(communicator.key);
    out_communicator.mutable_devices()->Add(communicator.devices.begin(),
                                            communicator.devices.end());
  }
  *out.mutable_deadline() = ToProto(start.deadline);
  *out.mutable_stall_limit() = ToProto(start.stall_limit);
  return request;
}

TaskOutcome OutcomeOf(const v1::ExecuteResponse::Report& report) {
  return TaskOutcome{
      .status = StatusFromCode(report.code(), report.message()),
      .lost_peers = {report.lost_peers().begin(), report.lost_peers().end()},
      .broken_devices = {report.broken_devices().begin(), report.broken_devices().end()},
      .figures = FiguresOf(report)};
}

}  // namespace crossmesh
