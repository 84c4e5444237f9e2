// Commands that list, create, trim and delete storages through the memory sockets of workers.

#include "client/cli/cli.h"
#include "client/cli/listing.h"
#include "client/cli/memory_flag.h"
#include "client/cli/options.h"
#include "client/cli/report_text.h"
#include "client/client.h"
#include "client/memory/memory_client.h"
#include "common/base/status_macros.h"
#include "common/mesh/device.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

struct OneStorageFlags {
  std::string name;
  std::string device;
  int64_t bytes = 0;
  std::vector<std::string> memory;
};

nlohmann::json DocumentOf(const StorageDescription& storage) {
  // As a memory socket answers.
  return {
      {"storage", storage.storage},          {"device", storage.device}, {"bytes", storage.bytes},
      {"generation", storage.generation},    {"dirty", storage.dirty},   {"gpu", storage.gpu},
      {"shadow_bytes", storage.shadow_bytes}};
}

absl::Status ListStorages(Cli& cli, const OneStorageFlags& flags) {
  ASSIGN_OR_RETURN(const std::vector<HostMemory> hosts, ParseMemoryFlag(flags.memory));
  Listing listing(cli, "storage", "storages",
                  {"STORAGE", "DEVICE", "SIZE>", "SHADOW>", "GENERATION>", "STATE", "MEMORY"});
  for (const HostMemory& host : hosts) {
    ASSIGN_OR_RETURN(MemoryClient memory, MemoryClient::Connect(host.socket));
    ASSIGN_OR_RETURN(const std::vector<StorageDescription> storages, memory.List());
    for (const StorageDescription& storage : storages) {
      listing.Add(absl::StrCat(storage.storage, " ", storage.device),
                  {PrintableName(storage.storage), storage.device, Bytes(storage.bytes),
                   Bytes(storage.shadow_bytes), absl::StrCat(storage.generation),
                   storage.dirty ? "DIRTY" : "WHOLE", storage.gpu.empty() ? "host" : storage.gpu},
                  DocumentOf(storage));
    }
  }
  return AnswerListing(cli, listing);
}

// The worker of the device's host.
absl::StatusOr<MemoryClient> WorkerOf(const OneStorageFlags& flags) {
  ASSIGN_OR_RETURN(const std::vector<HostMemory> hosts, ParseMemoryFlag(flags.memory));
  ASSIGN_OR_RETURN(const DeviceId device, ParseDevice(flags.device));
  const auto found = std::ranges::find(hosts, device.host, &HostMemory::host);
  if (found != hosts.end()) return MemoryClient::Connect(found->socket);
  return absl::InvalidArgumentError(
      absl::StrCat("--memory: expected the socket of host \"", device.host, "\", found none"));
}

absl::StatusOr<StorageDescription> CreateIn(MemoryClient& memory, const OneStorageFlags& flags) {
  const absl::StatusOr<MappedStorage> created =
      memory.Create(flags.name, flags.device, flags.bytes);
  if (created.ok()) return created->description();
  if (!absl::IsFailedPrecondition(created.status())) return created.status();
  // It may be a GPU's, which is created just so but cannot be mapped.
  const absl::StatusOr<GpuStorage> on_gpu =
      memory.CreateOnGpu(flags.name, flags.device, flags.bytes);
  if (!on_gpu.ok()) return created.status();
  return on_gpu->description;
}

absl::Status Create(Cli& cli, const OneStorageFlags& flags) {
  ASSIGN_OR_RETURN(MemoryClient memory, WorkerOf(flags));
  ASSIGN_OR_RETURN(const StorageDescription storage, CreateIn(memory, flags));
  return cli.Answer(
      DocumentOf(storage),
      absl::StrCat("storage \"", storage.storage, "\" of device ", storage.device, ": ",
                   Bytes(storage.bytes), ", generation ", storage.generation, "\n"));
}

// What is done to a storage, and what is said of it then.
struct StorageChange {
  absl::Status (MemoryClient::*run)(const std::string& storage, const std::string& device);
  const char* key;   // of the storage in the document
  const char* text;  // after the storage
};
constexpr StorageChange kTrim = {&MemoryClient::Trim, "trimmed", "has no shadow"};
constexpr StorageChange kDelete = {&MemoryClient::Delete, "deleted", "deleted"};

absl::Status Apply(const StorageChange& change, Cli& cli, const OneStorageFlags& flags) {
  ASSIGN_OR_RETURN(MemoryClient memory, WorkerOf(flags));
  RETURN_IF_ERROR((memory.*change.run)(flags.name, flags.device));
  return cli.Answer({{change.key, flags.name}, {"device", flags.device}},
                    absl::StrCat("storage \"", flags.name, "\" of device ", flags.device, " ",
                                 change.text, "\n"));
}

}  // namespace

void AddStorageRegistryCommands(Cli& cli, CLI::App& group) {
  const auto flags = std::make_shared<OneStorageFlags>();

  CLI::App& list =
      cli.AddCommand(group, "list", "Lists the storages of workers",
                     "  crossmesh storage list --memory a=/run/a.memory,b=/run/b.memory\n");
  cli.AddOutputFlag(list);
  cli.Run(list, [&cli, flags] { return ListStorages(cli, *flags); });

  CLI::App& create = cli.AddCommand(
      group, "create", "Creates a storage, or finds it with this size already",
      "  crossmesh storage create weights a.0 --bytes 1073741824 --memory a=/run/a.memory\n");
  AddOption(create, "--bytes", flags->bytes, "Its size").NotNegative().Required();
  cli.Run(create, [&cli, flags] { return Create(cli, *flags); });

  CLI::App& trim = cli.AddCommand(
      group, "trim",
      "Frees a storage's shadow, the second copy that is kept for the next operation",
      "  crossmesh storage trim weights a.0 --memory a=/run/a.memory\n");
  cli.Run(trim, [&cli, flags] { return Apply(kTrim, cli, *flags); });

  CLI::App& remove =
      cli.AddCommand(group, "delete", "Deletes a storage that no operation uses",
                     "  crossmesh storage delete weights a.0 --memory a=/run/a.memory\n");
  cli.Run(remove, [&cli, flags] { return Apply(kDelete, cli, *flags); });

  for (CLI::App* command : {&create, &trim, &remove}) {
    AddOption(*command, "name", flags->name, "The storage's name").Required();
    AddOption(*command, "device", flags->device, "Its device, e.g. node-a.0").Required();
  }
  for (CLI::App* command : {&list, &create, &trim, &remove}) {
    AddMemoryFlag(*command, flags->memory);
  }
}

}  // namespace crossmesh
