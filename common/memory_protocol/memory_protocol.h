#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The datagrams by which a user process asks the worker of its host for memory, over a Unix socket
// of type SOCK_SEQPACKET; one request, one reply. JSON, so that any language can speak it. With the
// reply to create and open comes the descriptor of the arena (SCM_RIGHTS), with the one to sequence
// that of a page with a StorageSequence; with the request to lend goes that of an allocation on a
// GPU, unless the request has an IPC handle; with the one to bind that of a sealed file, a
// PieceList.
inline constexpr int64_t kMemoryDatagramBytesMax = int64_t{64} * 1024;

struct MemoryRequest {
  enum class Op : uint8_t { kCreate, kOpen, kSequence, kList, kDelete, kTrim, kLend, kBind };
  static constexpr size_t kNameBytesMax = 255;
  static constexpr size_t kIpcHandleBytes = 64;

  Op op = Op::kList;
  std::string storage;  // but for kList
  std::string device;   // "node-a.0"; but for kList
  int64_t bytes = 0;    // for kCreate, kLend, kBind
  // For kLend, kBind: that of the storage as the client knows it; 0: there is none.
  uint64_t generation = 0;
  // For kLend, of memory of cudaMalloc: the bytes of its cudaIpcMemHandle_t, as hex digits in JSON.
  // Such a loan ends with the connection that it was made by. Empty: a descriptor goes along.
  std::string ipc_handle = {};
  friend bool operator==(const MemoryRequest&, const MemoryRequest&) = default;
};

struct StorageDescription {
  std::string storage;
  std::string device;
  int64_t bytes = 0;
  uint64_t generation = 0;
  bool dirty = false;
  // The UUID of the GPU whose memory it is; empty: host memory. The descriptor is then one for
  // cuMemImportFromShareableHandle, not for mmap.
  std::string gpu = {};
  // Of the shadow, the second copy that an operation writes and that is kept for the next one; 0:
  // there is none.
  int64_t shadow_bytes = 0;
  friend bool operator==(const StorageDescription&, const StorageDescription&) = default;
};

struct MemoryReply {
  absl::Status status;
  // The storage that was created or opened; or the list, cut where a datagram ends.
  std::vector<StorageDescription> storages;
  bool complete = true;  // false: the list was cut
  friend bool operator==(const MemoryReply&, const MemoryReply&) = default;
};

std::string Encode(const MemoryRequest& request);
std::string Encode(const MemoryReply& reply);  // at most kMemoryDatagramBytesMax
// InvalidArgument, naming the field, for anything that Encode does not make.
absl::StatusOr<MemoryRequest> DecodeMemoryRequest(absl::string_view datagram);
absl::StatusOr<MemoryReply> DecodeMemoryReply(absl::string_view datagram);

}  // namespace crossmesh
