#include "common/memory_protocol/memory_protocol.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using Json = nlohmann::json;

constexpr std::pair<MemoryRequest::Op, absl::string_view> kOps[] = {
    {MemoryRequest::Op::kCreate, "create"}, {MemoryRequest::Op::kOpen, "open"},
    {MemoryRequest::Op::kList, "list"},     {MemoryRequest::Op::kDelete, "delete"},
    {MemoryRequest::Op::kTrim, "trim"},     {MemoryRequest::Op::kLend, "lend"},
    {MemoryRequest::Op::kBind, "bind"},     {MemoryRequest::Op::kSequence, "sequence"},
};

absl::Status Malformed(absl::string_view field, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("field \"", field, "\" of a memory datagram: expected ", expected));
}

std::string Dump(const Json& json) {
  // Names come from users: what is not UTF-8 is replaced, not thrown over.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<Json> ParseObject(absl::string_view datagram) {
  Json json = Json::parse(datagram.begin(), datagram.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("a memory datagram is a JSON object");
  return json;
}

absl::StatusOr<std::string> GetText(const Json& object, const char* field, size_t bytes_max) {
  const auto found = object.find(field);
  if (found == object.end() || !found->is_string() ||
      found->get_ref<const std::string&>().size() > bytes_max) {
    return Malformed(field, absl::StrCat("a text of at most ", bytes_max, " bytes"));
  }
  return found->get<std::string>();
}

absl::StatusOr<int64_t> GetCount(const Json& object, const char* field) {
  const auto found = object.find(field);
  // Numbers above the largest int64 are unsigned and too large.
  if (found == object.end() || !found->is_number_integer() ||
      (found->is_number_unsigned() && found->get<uint64_t>() > uint64_t{INT64_MAX}) ||
      found->get<int64_t>() < 0) {
    return Malformed(field, "an integer from 0 to 2^63 - 1");
  }
  return found->get<int64_t>();
}

absl::StatusOr<bool> GetFlag(const Json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end() || !found->is_boolean()) return Malformed(field, "true or false");
  return found->get<bool>();
}

bool HasBytes(MemoryRequest::Op op) {
  return op == MemoryRequest::Op::kCreate || op == MemoryRequest::Op::kLend ||
         op == MemoryRequest::Op::kBind;
}

bool HasGeneration(MemoryRequest::Op op) {
  return op == MemoryRequest::Op::kLend || op == MemoryRequest::Op::kBind;
}

absl::StatusOr<std::string> GetIpcHandle(const Json& object) {
  if (!object.contains("ipc_handle")) return "";
  const absl::StatusOr<std::string> digits =
      GetText(object, "ipc_handle", 2 * MemoryRequest::kIpcHandleBytes);
  if (!digits.ok() || digits->size() != 2 * MemoryRequest::kIpcHandleBytes ||
      !std::ranges::all_of(*digits, absl::ascii_isxdigit)) {
    return Malformed("ipc_handle", absl::StrCat(2 * MemoryRequest::kIpcHandleBytes, " hex digits"));
  }
  return absl::HexStringToBytes(*digits);
}

Json ToJson(const StorageDescription& storage) {
  return {
      {"storage", storage.storage},          {"device", storage.device}, {"bytes", storage.bytes},
      {"generation", storage.generation},    {"dirty", storage.dirty},   {"gpu", storage.gpu},
      {"shadow_bytes", storage.shadow_bytes}};
}

absl::StatusOr<StorageDescription> StorageFromJson(const Json& json) {
  if (!json.is_object()) return Malformed("storages", "objects");
  StorageDescription storage;
  ASSIGN_OR_RETURN(storage.storage, GetText(json, "storage", MemoryRequest::kNameBytesMax));
  ASSIGN_OR_RETURN(storage.device, GetText(json, "device", MemoryRequest::kNameBytesMax));
  ASSIGN_OR_RETURN(storage.bytes, GetCount(json, "bytes"));
  ASSIGN_OR_RETURN(const int64_t generation, GetCount(json, "generation"));
  storage.generation = static_cast<uint64_t>(generation);
  ASSIGN_OR_RETURN(storage.dirty, GetFlag(json, "dirty"));
  ASSIGN_OR_RETURN(storage.gpu, GetText(json, "gpu", MemoryRequest::kNameBytesMax));
  ASSIGN_OR_RETURN(storage.shadow_bytes, GetCount(json, "shadow_bytes"));
  return storage;
}

}  // namespace

std::string Encode(const MemoryRequest& request) {
  Json json = Json::object();
  for (const auto& [op, name] : kOps) {
    if (op == request.op) json["op"] = std::string(name);
  }
  if (request.op != MemoryRequest::Op::kList) {
    json["storage"] = request.storage;
    json["device"] = request.device;
  }
  if (HasBytes(request.op)) json["bytes"] = request.bytes;
  if (HasGeneration(request.op)) json["generation"] = request.generation;
  if (!request.ipc_handle.empty()) json["ipc_handle"] = absl::BytesToHexString(request.ipc_handle);
  return Dump(json);
}

absl::StatusOr<MemoryRequest> DecodeMemoryRequest(absl::string_view datagram) {
  ASSIGN_OR_RETURN(const Json json, ParseObject(datagram));
  ASSIGN_OR_RETURN(const std::string name, GetText(json, "op", 16));
  MemoryRequest request;
  bool known = false;
  for (const auto& [op, op_name] : kOps) {
    if (op_name != name) continue;
    request.op = op;
    known = true;
  }
  if (!known) return Malformed("op", "create, open, sequence, list, delete, trim, lend or bind");
  if (request.op == MemoryRequest::Op::kList) return request;
  ASSIGN_OR_RETURN(request.storage, GetText(json, "storage", MemoryRequest::kNameBytesMax));
  if (request.storage.empty()) return Malformed("storage", "a name");
  ASSIGN_OR_RETURN(request.device, GetText(json, "device", MemoryRequest::kNameBytesMax));
  if (!HasBytes(request.op)) return request;
  ASSIGN_OR_RETURN(request.bytes, GetCount(json, "bytes"));
  if (!HasGeneration(request.op)) return request;
  // What was lent had none at first.
  if (request.op == MemoryRequest::Op::kBind || json.contains("generation")) {
    ASSIGN_OR_RETURN(const int64_t generation, GetCount(json, "generation"));
    request.generation = static_cast<uint64_t>(generation);
  }
  if (request.op == MemoryRequest::Op::kLend) {
    ASSIGN_OR_RETURN(request.ipc_handle, GetIpcHandle(json));
  }
  return request;
}

std::string Encode(const MemoryReply& reply) {
  Json json = {{"code", static_cast<int>(reply.status.code())},
               {"message", std::string(reply.status.message().substr(0, 4096))}};
  Json storages = Json::array();
  bool complete = reply.complete;
  // Room for code, message (escapes included) and punctuation.
  int64_t room = kMemoryDatagramBytesMax - Dump(json).size() - 64;
  for (const StorageDescription& storage : reply.storages) {
    Json one = ToJson(storage);
    room -= std::ssize(Dump(one)) + 1;
    if (room < 0) {
      complete = false;
      break;
    }
    storages.push_back(std::move(one));
  }
  json["storages"] = std::move(storages);
  json["complete"] = complete;
  return Dump(json);
}

absl::StatusOr<MemoryReply> DecodeMemoryReply(absl::string_view datagram) {
  ASSIGN_OR_RETURN(const Json json, ParseObject(datagram));
  ASSIGN_OR_RETURN(const int64_t code, GetCount(json, "code"));
  if (code > static_cast<int64_t>(absl::StatusCode::kUnauthenticated)) {
    return Malformed("code", "a status code");
  }
  ASSIGN_OR_RETURN(const std::string message, GetText(json, "message", kMemoryDatagramBytesMax));
  MemoryReply reply{.status = absl::Status(static_cast<absl::StatusCode>(code), message)};
  ASSIGN_OR_RETURN(reply.complete, GetFlag(json, "complete"));
  const auto storages = json.find("storages");
  if (storages == json.end() || !storages->is_array()) return Malformed("storages", "a list");
  for (const Json& storage : *storages) {
    ASSIGN_OR_RETURN(reply.storages.emplace_back(), StorageFromJson(storage));
  }
  return reply;
}

}  // namespace crossmesh
