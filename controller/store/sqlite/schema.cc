#include "controller/store/sqlite/schema.h"

#include "common/base/little_endian.h"
#include "common/base/status_macros.h"
#include "controller/store/store_error.h"

#include <array>
#include <iterator>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kApplication = 0x584d5348;  // "XMSH"

// Values come last, so that reading the other columns does not touch those that are large.
constexpr char kMetaTable[] =
    "CREATE TABLE meta(id INTEGER PRIMARY KEY CHECK(id = 1), revision INTEGER NOT NULL, "
    "epoch INTEGER NOT NULL, next_id INTEGER NOT NULL, row_count INTEGER NOT NULL, "
    "row_sum INTEGER NOT NULL, chain BLOB NOT NULL, floor INTEGER NOT NULL, "
    "floor_chain BLOB NOT NULL, checksum INTEGER NOT NULL)";
constexpr char kVersionsTable[] =
    "CREATE TABLE versions(id INTEGER PRIMARY KEY, revision INTEGER NOT NULL, key BLOB NOT NULL, "
    "value_checksum INTEGER NOT NULL, checksum INTEGER NOT NULL, value BLOB)";

std::string DigestBytes(const Digest& digest) {
  return ToLittleEndian(digest.high, 8) + ToLittleEndian(digest.low, 8);
}

Digest ParseDigest(absl::string_view bytes) {
  return {.high = FromLittleEndian(bytes.substr(0, 8)), .low = FromLittleEndian(bytes.substr(8))};
}

absl::Status DamagedHead(absl::string_view what) {
  return StoreError(StoreErrorKind::kDamaged, absl::StrCat("table meta: ", what));
}

absl::Status MigrateOnce(SqliteConnection& connection, const SchemaMigration& migration,
                         int64_t version) {
  RETURN_IF_ERROR(connection.Execute("BEGIN IMMEDIATE"));
  const absl::Status migrated =
      connection.Execute(absl::StrCat(migration.sql, "; PRAGMA application_id = ", kApplication,
                                      "; PRAGMA user_version = ", version, "; COMMIT"));
  if (!migrated.ok()) connection.Rollback();
  return migrated;
}

}  // namespace

std::span<const SchemaMigration> SchemaMigrations() {
  static const auto* const migrations = new std::array<SchemaMigration, 1>{
      SchemaMigration{absl::StrCat(kMetaTable, "; ", kVersionsTable)}};
  return *migrations;
}

absl::StatusOr<int64_t> SchemaVersion(SqliteConnection& connection) {
  return connection.ReadInt("PRAGMA user_version");
}

absl::Status MigrateSchema(SqliteConnection& connection,
                           std::span<const SchemaMigration> migrations,
                           absl::FunctionRef<absl::Status(int64_t version)> backup) {
  ASSIGN_OR_RETURN(int64_t version, SchemaVersion(connection));
  ASSIGN_OR_RETURN(const int64_t application, connection.ReadInt("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t tables, connection.ReadInt("SELECT count(*) FROM sqlite_schema"));
  const bool is_empty = version == 0 && application == 0 && tables == 0;
  if (!is_empty && (application != kApplication || version <= 0)) {
    return StoreError(StoreErrorKind::kUnusable,
                      absl::StrCat("database: expected one of Crossmesh, found application ",
                                   application, ", version ", version));
  }
  if (version > std::ssize(migrations)) {
    return StoreError(StoreErrorKind::kTooNew,
                      absl::StrCat("database: expected schema version ", migrations.size(),
                                   " at most, found ", version, ": a newer release wrote it"));
  }
  if (!is_empty && version < std::ssize(migrations)) RETURN_IF_ERROR(backup(version));
  for (; version < std::ssize(migrations); ++version) {
    RETURN_IF_ERROR(MigrateOnce(connection, migrations[version], version + 1));
  }
  return absl::OkStatus();
}

absl::Status CheckSchema(SqliteConnection& connection) {
  constexpr std::pair<absl::string_view, absl::string_view> kTables[] = {
      {"meta", kMetaTable}, {"versions", kVersionsTable}};
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   connection.Prepare("SELECT name, sql, type FROM sqlite_schema ORDER BY name"));
  for (const auto& [name, sql] : kTables) {
    ASSIGN_OR_RETURN(const bool found, statement.Step());
    if (found && statement.Bytes(0) == name && statement.Bytes(1) == sql &&
        statement.Bytes(2) == "table") {
      continue;
    }
    return StoreError(StoreErrorKind::kDamaged,
                      absl::StrCat("database: expected table ", name, " as it was made, found ",
                                   found ? statement.Bytes(0) : "none"));
  }
  ASSIGN_OR_RETURN(const bool more, statement.Step());
  if (!more) return absl::OkStatus();
  return StoreError(StoreErrorKind::kDamaged,
                    absl::StrCat("database: found ", statement.Bytes(2), " ", statement.Bytes(0),
                                 ", which is not of Crossmesh"));
}

absl::StatusOr<StoreHead> ReadHead(SqliteConnection& connection) {
  ASSIGN_OR_RETURN(
      SqliteStatement statement,
      connection.Prepare("SELECT revision, epoch, next_id, row_count, row_sum, chain, floor, "
                         "floor_chain, checksum FROM meta"));
  ASSIGN_OR_RETURN(const bool found, statement.Step());
  if (!found) return DamagedHead("expected a row, found none");
  if (statement.Bytes(5).size() != 16 || statement.Bytes(7).size() != 16) {
    return DamagedHead("expected chains of 16 bytes");
  }
  const StoreHead head = {.revision = statement.Int(0),
                          .epoch = static_cast<uint64_t>(statement.Int(1)),
                          .next_id = statement.Int(2),
                          .row_count = statement.Int(3),
                          .row_sum = static_cast<uint64_t>(statement.Int(4)),
                          .chain = ParseDigest(statement.Bytes(5)),
                          .floor = statement.Int(6),
                          .floor_chain = ParseDigest(statement.Bytes(7))};
  if (head.Checksum() != statement.Int(8)) {
    return DamagedHead(absl::StrCat("expected checksum ", head.Checksum(), ", found ",
                                    statement.Int(8), ", at revision ", head.revision));
  }
  return head;
}

absl::StatusOr<SqliteStatement> PrepareWriteHead(SqliteConnection& connection) {
  return connection.Prepare("INSERT OR REPLACE INTO meta VALUES(1, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
}

absl::Status WriteHead(SqliteStatement& statement, const StoreHead& head) {
  const std::string chain = DigestBytes(head.chain);
  const std::string floor_chain = DigestBytes(head.floor_chain);
  statement.Bind(1, head.revision)
      .Bind(2, static_cast<int64_t>(head.epoch))
      .Bind(3, head.next_id)
      .Bind(4, head.row_count)
      .Bind(5, static_cast<int64_t>(head.row_sum))
      .Bind(6, absl::string_view(chain))
      .Bind(7, head.floor)
      .Bind(8, absl::string_view(floor_chain))
      .Bind(9, head.Checksum());
  return statement.Run();
}

}  // namespace crossmesh
