#pragma once

#include "controller/store/sqlite/sqlite_store.h"
#include "controller/store/sqlite/sqlite_upkeep.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// The store of a controller, with its epoch claimed. Errors have exit codes of their own, a cause
// each.
absl::StatusOr<std::unique_ptr<SqliteStore>> OpenStoreOfController(
    const std::string& folder, std::function<void(const absl::Status&)> on_fatal);

// Copies that store again and again while its controller runs, as the options say.
absl::StatusOr<std::shared_ptr<StoreUpkeep>> StartUpkeep(SqliteStore& store,
                                                         const SqliteUpkeep::Options& options);

// What needs no running controller: verify-store, backup, restore. The exit code, or nothing when
// the arguments name none of these.
std::optional<int> RunStoreCommand(int argc, const char* const* argv);

}  // namespace crossmesh
