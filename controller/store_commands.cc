#include "controller/store_commands.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/standard_output.h"
#include "common/base/status_macros.h"
#include "common/daemon/daemon_main.h"
#include "controller/store/store_error.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <utility>

#include <CLI/CLI.hpp>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

const RealClock& ClockOfStores() {
  static const RealClock clock;
  return clock;
}

struct Refusal {
  int exit_code;
  absl::string_view remedy;
};

Refusal RefusalOf(StoreErrorKind kind) {
  switch (kind) {
    case StoreErrorKind::kLocked:
      return {kExitStateLocked, "stop that process, or name another folder"};
    case StoreErrorKind::kTooNew:
      return {kExitStateTooNew, "install that release, or restore a backup of before"};
    case StoreErrorKind::kUnusable:
      return {kExitStateUnusable, "make the folder this user's alone, and writable"};
    case StoreErrorKind::kDamaged:
      return {kExitStateDamaged, "keep the folder, and restore the last backup into another one"};
    case StoreErrorKind::kFull:
      return {kExitStateFull, "make room on its disk"};
  }
  return {kExitFailure, ""};
}

// An error of the store, with its folder, what to do about it, and what the process exits with;
// others as they are.
absl::Status Explained(const std::string& folder, const absl::Status& status) {
  const std::optional<StoreErrorKind> kind = StoreErrorKindOf(status);
  if (!kind.has_value()) return status;
  const Refusal refusal = RefusalOf(*kind);
  // Most messages name the folder already.
  const std::string where = absl::StrContains(status.message(), folder)
                                ? std::string(status.message())
                                : absl::StrCat("store ", folder, ": ", status.message());
  return WithExitCode(absl::Status(status.code(), absl::StrCat(where, "; ", refusal.remedy)),
                      refusal.exit_code);
}

SqliteStore::Options OptionsOf(const std::string& folder) {
  return {.folder = folder, .clock = ClockOfStores()};
}

struct StoreCommand {
  absl::string_view name;
  absl::string_view summary;
  absl::string_view file;  // what its file is; empty: it has none
  absl::Status (*run)(const std::string& folder, const std::string& file);
  absl::string_view done;
};

constexpr std::array kCommands = {
    StoreCommand{"verify-store",
                 "Read the whole store of a controller that does not run, and hold it to its sums",
                 "",
                 [](const std::string& folder, const std::string&) {
                   return SqliteStore::VerifyFolder(OptionsOf(folder));
                 },
                 "is whole"},
    StoreCommand{"backup",
                 "Copy the store, whether its controller runs or not, and verify the copy",
                 "FILE that is made",
                 [](const std::string& folder, const std::string& file) {
                   return SqliteStore::BackUpFolder(folder, file);
                 },
                 "is backed up"},
    StoreCommand{"restore",
                 "Make the store of a controller from a backup, in a folder that has none",
                 "FILE of the backup",
                 [](const std::string& folder, const std::string& file) {
                   return SqliteStore::Restore(file, OptionsOf(folder));
                 },
                 "is restored"}};

int Finish(const StoreCommand& command, const std::string& folder, absl::Status status) {
  if (status.ok()) {
    status = WriteToStandardOutput(absl::StrCat("the store in ", folder, " ", command.done, "\n"));
  }
  if (status.ok()) return EXIT_SUCCESS;
  status = Explained(folder, status);
  std::cerr << command.name << ": error: " << status.message() << "\n";
  return ExitCodeOf(status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteStore>> OpenStoreOfController(
    const std::string& folder, std::function<void(const absl::Status&)> on_fatal) {
  SqliteStore::Options options = OptionsOf(folder);
  options.on_fatal = std::move(on_fatal);
  absl::StatusOr<std::unique_ptr<SqliteStore>> store = SqliteStore::Open(options);
  if (!store.ok()) return Explained(folder, store.status());
  // Before any worker hears of it.
  const absl::Status claimed = (*store)->Commit({.epoch = (*store)->next_epoch()}).status();
  if (!claimed.ok()) return Explained(folder, claimed);
  const SqliteStore::Stats stats = (*store)->stats();
  LogInfo("store_opened", {{"folder", folder},
                           {"revision", stats.revision},
                           {"objects", stats.objects},
                           {"database_bytes", stats.database_bytes}});
  return store;
}

absl::StatusOr<std::shared_ptr<StoreUpkeep>> StartUpkeep(SqliteStore& store,
                                                         const SqliteUpkeep::Options& options) {
  absl::StatusOr<std::unique_ptr<SqliteUpkeep>> upkeep =
      SqliteUpkeep::Start(store, ClockOfStores(), options);
  if (!upkeep.ok()) return WithExitCode(upkeep.status(), kExitStateUnusable);
  return *std::move(upkeep);
}

std::optional<int> RunStoreCommand(int argc, const char* const* argv) {
  const absl::string_view name = argc > 1 ? argv[1] : "";
  const auto* const command = std::ranges::find(kCommands, name, &StoreCommand::name);
  if (command == kCommands.end()) return std::nullopt;
  SetMinimumLogLevel(LogLevel::kWarning);
  CLI::App app(std::string(command->summary), absl::StrCat("crossmesh-controller ", command->name));
  std::string folder;
  std::string file;
  app.add_option("--state-dir", folder, "Folder of the store")->required();
  if (!command->file.empty()) {
    app.add_option("FILE", file, std::string(command->file))->required();
  }
  try {
    app.parse(argc - 1, argv + 1);
  } catch (const CLI::Success& asked) {
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return kExitUsage;
  }
  return Finish(*command, folder, command->run(folder, file));
}

}  // namespace crossmesh
