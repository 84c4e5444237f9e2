#pragma once

#include "controller/store/sqlite/sqlite_connection.h"
#include "controller/store/sqlite/store_head.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// What brings a database from one version of the schema to the next; the first makes an empty file
// one of ours. Releases only ever add to the end.
struct SchemaMigration {
  std::string sql;
};

// Of this release. The newest version is how many there are.
std::span<const SchemaMigration> SchemaMigrations();

// Migrates a database to the newest version, each step in a transaction of its own. `backup` is
// called before the first, unless the database is empty. StoreError: kTooNew, with both versions;
// kUnusable: another program's database.
absl::Status MigrateSchema(SqliteConnection& connection,
                           std::span<const SchemaMigration> migrations,
                           absl::FunctionRef<absl::Status(int64_t version)> backup);

// kDamaged: there are other tables than ours, or ours were changed.
absl::Status CheckSchema(SqliteConnection& connection);

// kDamaged: there is none, or its checksum is not its own.
absl::StatusOr<StoreHead> ReadHead(SqliteConnection& connection);
absl::StatusOr<SqliteStatement> PrepareWriteHead(SqliteConnection& connection);
absl::Status WriteHead(SqliteStatement& prepared, const StoreHead& head);

// 0: empty.
absl::StatusOr<int64_t> SchemaVersion(SqliteConnection& connection);

}  // namespace crossmesh
