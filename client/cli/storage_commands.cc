// Commands that fill, compare and save storages through the memory sockets of workers. They take
// the flags of a reshard, which say what lies where.

#include "client/cli/cli.h"
#include "client/cli/local_spec.h"
#include "client/cli/memory_flag.h"
#include "client/cli/options.h"
#include "client/cli/progress.h"
#include "client/cli/spec_flags.h"
#include "client/cli/storage_tiles.h"
#include "client/cli/tensor_values.h"
#include "client/client.h"
#include "client/memory/memory_client.h"
#include "client/pause.h"
#include "client/safetensors/collection.h"
#include "common/base/byte_count.h"
#include "common/base/clock.h"
#include "common/base/format.h"
#include "common/base/status_macros.h"
#include "common/base/thread.h"
#include "common/mesh/device.h"
#include "common/reshard/reshard_inputs.h"
#include "common/wire/tensor_codec.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kProgressInterval = absl::Milliseconds(50);

struct StorageFlags {
  SpecFlags spec;
  std::vector<std::string> memory;  // HOST=SOCKET
  std::string values;               // safetensors; empty: generated
  std::string output;
};

// What a reshard moves, and the values that it should move.
struct Task {
  v1::ReshardSpec spec;
  std::unique_ptr<const TensorTable> tensors;
  std::unique_ptr<TensorValues> values;
};

absl::StatusOr<std::unique_ptr<TensorValues>> ValuesOf(const std::string& path,
                                                       const Manifest& manifest) {
  if (path.empty()) return std::make_unique<GeneratedValues>(manifest);
  ASSIGN_OR_RETURN(SafetensorsCollection files, SafetensorsCollection::Open(path));
  if (files.manifest() != manifest) {
    return absl::InvalidArgumentError(
        absl::StrCat("--values: expected the tensors of --manifest, found others in ", path));
  }
  return std::make_unique<FileValues>(std::move(files));
}

absl::StatusOr<Task> ReadTask(const StorageFlags& flags) {
  Task task;
  ASSIGN_OR_RETURN(task.spec, flags.spec.Read());
  ASSIGN_OR_RETURN(const ReshardInputs inputs, ReadInputs(task.spec));
  ASSIGN_OR_RETURN(TensorTable tensors, BuildReshardTensors(inputs));
  task.tensors = std::make_unique<const TensorTable>(std::move(tensors));
  ASSIGN_OR_RETURN(task.values, ValuesOf(flags.values, *inputs.manifest));
  return task;
}

// A device's part of one side, with its memory.
struct Holding {
  std::string device;
  StorageTiles tiles;
  MappedStorage storage;
};

// The storages of one side on the hosts of `memory`.
class SideOpener {
 public:
  SideOpener(const Task& task, Side side) : tensors_(*task.tensors), side_(side) {
    const bool is_source = side == Side::kSource;
    name_ = is_source ? task.spec.source().storage() : task.spec.destination().storage();
    flag_ = is_source ? "--source-storage" : "--destination-storage";
  }

  // Storages that are not there are created with `create`, and an error without.
  absl::StatusOr<std::vector<Holding>> Open(std::span<const std::string> memory, bool create) {
    if (name_.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(flag_, ": expected a name, found none"));
    }
    ASSIGN_OR_RETURN(const std::vector<HostMemory> hosts, ParseMemoryFlag(memory));
    for (const HostMemory& host : hosts) RETURN_IF_ERROR(OpenHost(host.host, host.socket, create));
    if (!holdings_.empty()) return std::move(holdings_);
    return absl::InvalidArgumentError(
        "--memory: expected the host of a device that has something on this side, found none");
  }

 private:
  absl::Status OpenHost(const std::string& host, const std::string& socket, bool create) {
    ASSIGN_OR_RETURN(MemoryClient memory, MemoryClient::Connect(socket));
    for (DeviceRank rank = 0; rank < std::ssize(tensors_.devices()); ++rank) {
      const DeviceId& device = tensors_.devices()[rank];
      StorageTiles tiles(tensors_, side_, rank);
      // A device that has nothing on this side has no storage there.
      if (device.host != host || tiles.bytes() == 0) continue;
      const std::string text = ToString(device);
      ASSIGN_OR_RETURN(MappedStorage storage, create ? memory.Create(name_, text, tiles.bytes())
                                                     : memory.Open(name_, text));
      // Opened, it may be of another reshard with the same name.
      if (std::ssize(storage.bytes()) != tiles.bytes()) {
        return absl::FailedPreconditionError(
            absl::StrCat("storage \"", name_, "\" on ", text, ": expected ", tiles.bytes(),
                         " bytes, found ", storage.bytes().size()));
      }
      holdings_.push_back({text, std::move(tiles), std::move(storage)});
    }
    return absl::OkStatus();
  }

  const TensorTable& tensors_;
  const Side side_;
  std::string name_;
  std::string flag_;
  std::vector<Holding> holdings_;
};

using Work = absl::FunctionRef<absl::Status(const Holding&, std::atomic<int64_t>& done_bytes)>;

// Does it for all holdings side by side, with progress; the first error.
absl::Status OnEach(Cli& cli, const char* label, std::span<const Holding> holdings, Work work) {
  int64_t total_bytes = 0;
  for (const Holding& holding : holdings) total_bytes += holding.tiles.bytes();
  const RealClock clock;
  const absl::Duration begin = clock.Monotonic();
  Progress progress(label, total_bytes, Progress::FormFor(cli.json()), clock);
  std::atomic<int64_t> done_bytes = 0;
  std::atomic<int64_t> running = std::ssize(holdings);
  std::vector<absl::Status> results(holdings.size());
  std::vector<Thread> threads;
  for (size_t i = 0; i < holdings.size(); ++i) {
    // A thread for each device: filling and comparing are bound by the processor, not by memory.
    threads.emplace_back(label, [&, i] {
      results[i] = work(holdings[i], done_bytes);
      --running;
    });
  }
  // Only this thread writes to the terminal, so it looks at a counter instead of being told.
  while (running > 0) {
    Pause(kProgressInterval);
    progress.Update(done_bytes);
  }
  for (Thread& thread : threads) thread.Join();
  for (const absl::Status& result : results) RETURN_IF_ERROR(result);
  progress.Finish(absl::StrCat(label, ": ", FormatBytes(ByteCount(total_bytes)), " on ",
                               holdings.size(), " devices in ",
                               FormatSeconds(absl::ToDoubleSeconds(clock.Monotonic() - begin))));
  if (cli.json()) cli.PrintDocument({{"devices", holdings.size()}, {"bytes", total_bytes}});
  return absl::OkStatus();
}

absl::Status Fill(Cli& cli, const StorageFlags& flags) {
  ASSIGN_OR_RETURN(const Task task, ReadTask(flags));
  ASSIGN_OR_RETURN(const std::vector<Holding> sources,
                   SideOpener(task, Side::kSource).Open(flags.memory, /*create=*/true));
  return OnEach(cli, "filling", sources, [&task](const Holding& source, auto& done_bytes) {
    source.tiles.Fill(*task.values, source.storage.bytes(), done_bytes);
    return absl::OkStatus();
  });
}

absl::Status Clear(Cli& cli, const StorageFlags& flags) {
  ASSIGN_OR_RETURN(const Task task, ReadTask(flags));
  ASSIGN_OR_RETURN(const std::vector<Holding> destinations,
                   SideOpener(task, Side::kDestination).Open(flags.memory, /*create=*/true));
  return OnEach(cli, "clearing", destinations, [](const Holding& destination, auto& done_bytes) {
    const std::span<std::byte> memory = destination.storage.bytes();
    std::memset(memory.data(), 0, memory.size());
    done_bytes += std::ssize(memory);
    return absl::OkStatus();
  });
}

absl::Status Check(Cli& cli, const StorageFlags& flags) {
  ASSIGN_OR_RETURN(const Task task, ReadTask(flags));
  ASSIGN_OR_RETURN(const std::vector<Holding> destinations,
                   SideOpener(task, Side::kDestination).Open(flags.memory, /*create=*/false));
  const ReceivedValues received(*task.values, *task.tensors);
  return OnEach(cli, "checking", destinations, [&](const Holding& destination, auto& done_bytes) {
    return destination.tiles.Check(received, destination.storage.bytes(), done_bytes);
  });
}

absl::Status Save(Cli& cli, const StorageFlags& flags) {
  ASSIGN_OR_RETURN(const Task task, ReadTask(flags));
  ASSIGN_OR_RETURN(const std::vector<Holding> destinations,
                   SideOpener(task, Side::kDestination).Open(flags.memory, /*create=*/false));
  std::error_code error;
  fs::create_directories(flags.output, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot create ", flags.output));
  }
  const Manifest manifest = ReceivedManifest(task.values->manifest(), *task.tensors);
  const auto save = [&](const Holding& destination, std::atomic<int64_t>& done_bytes) {
    const fs::path path = fs::path(flags.output) / (destination.device + ".safetensors");
    done_bytes += destination.tiles.bytes();
    return destination.tiles.Save(manifest, destination.storage.bytes(), path.string());
  };
  return OnEach(cli, "writing", destinations, save);
}

// What a reshard has brought lies by rules of the same layouts, without the types that it was
// converted to, and with a rule for each of the scales that came to it.
google::protobuf::RepeatedPtrField<v1::LayoutRule> ReceivedRules(const Task& task,
                                                                 const Manifest& received) {
  const TensorTable& tensors = *task.tensors;
  google::protobuf::RepeatedPtrField<v1::LayoutRule> rules;
  for (int32_t tensor = tensors.first_scales(); tensor < std::ssize(received.tensors()); ++tensor) {
    const int32_t group = tensors.group_of_tensor()[tensor];
    v1::LayoutRule& rule = *rules.Add();
    rule.set_pattern(received.tensors()[tensor].name);
    rule.set_layout(ToString(tensors.PlacementOf(Side::kDestination, group).layout));
  }
  // The first rule that fits is the tensor's.
  for (const v1::LayoutRule& rule : task.spec.destination().rules()) *rules.Add() = rule;
  for (v1::LayoutRule& rule : rules) rule.clear_dtype();
  return rules;
}

absl::Status Describe(Cli& cli, const StorageFlags& flags) {
  ASSIGN_OR_RETURN(const Task task, ReadTask(flags));
  const Manifest received = ReceivedManifest(task.values->manifest(), *task.tensors);
  v1::ReshardSpec next;
  *next.mutable_inline_manifest() = ToProto(received);
  v1::ReshardSide& source = *next.mutable_source();
  source = task.spec.destination();
  *source.mutable_rules() = ReceivedRules(task, received);
  *next.mutable_destination() = source;
  cli.PrintDocument(next);
  return absl::OkStatus();
}

constexpr const char* kExample =
    " --manifest gpt2.json --source 'fsdp=2 on a.0,b.0' --source-rules gpt2.fsdp.rules "
    "--source-storage weights --destination 'model=2 on a.0,b.0' --destination-rules "
    "gpt2.tp.rules --destination-storage serving";

}  // namespace

void AddStorageCommands(Cli& cli, CLI::App& app) {
  CLI::App& group = cli.AddGroup(
      app, "storage",
      "Lists, creates, trims, fills, compares and exports storages of workers of this machine");
  AddStorageRegistryCommands(cli, group);
  const auto flags = std::make_shared<StorageFlags>();
  const auto add = [&](const std::string& name, const std::string& description,
                       absl::Status (*run)(Cli&, const StorageFlags&)) -> CLI::App& {
    CLI::App& command = cli.AddCommand(
        group, name, description,
        absl::StrCat("  crossmesh storage ", name, kExample,
                     name == "describe" ? "" : " --memory a=/run/a.memory,b=/run/b.memory",
                     name == "export" ? " --output out" : "",
                     "\nA side of which no mesh is given is taken to be like the other one.\n"));
    flags->spec.AddTo(command);
    flags->spec.AddExecutionTo(command);
    cli.Run(command, [&cli, flags, run] {
      flags->spec.MirrorMissingSide();
      return run(cli, *flags);
    });
    return command;
  };
  CLI::App& fill = add("fill", "Creates the source's storages, and fills them", Fill);
  CLI::App& clear = add("clear", "Creates the destination's storages, and zeroes them", Clear);
  CLI::App& check = add("check", "Compares every element of the destination's storages", Check);
  CLI::App& save =
      add("export", "Writes a safetensors file for each device of the destination", Save);
  Cli::AddOtherName(save, "save");
  add("describe", "Prints what the destination has afterwards, as a request to go on from",
      Describe);
  for (CLI::App* const command : {&fill, &clear, &check, &save}) {
    AddMemoryFlag(*command, flags->memory);
  }
  for (CLI::App* const command : {&fill, &check}) {
    AddOption(*command, "--values", flags->values,
              "Safetensors file or folder (default: generated values)");
  }
  AddOption(save, "--output", flags->output, "Folder for the files").Required();
}

}  // namespace crossmesh
