#include "controller/store/sqlite/sqlite_connection.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "controller/store/store_error.h"

#include <array>
#include <utility>

#include <absl/strings/str_cat.h>
#include <sqlite3.h>

namespace crossmesh {
namespace {

// For checkpoints, which wait for readers; nothing else waits.
constexpr int kBusyMilliseconds = 2000;

// Of every connection. What a page says of itself is not believed, no schema runs code.
constexpr char kSettings[] =
    "PRAGMA synchronous = FULL;"
    "PRAGMA wal_autocheckpoint = 0;"
    "PRAGMA journal_size_limit = 67108864;"
    "PRAGMA cell_size_check = ON;"
    "PRAGMA trusted_schema = OFF;"
    "PRAGMA secure_delete = OFF;"
    "PRAGMA temp_store = MEMORY;"
    "PRAGMA cache_size = -1024;";

int RememberWalPages(void* pages, sqlite3*, const char*, int count) {
  *static_cast<int*>(pages) = count;
  return SQLITE_OK;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteConnection>> SqliteConnection::Open(const Options& options) {
  std::unique_ptr<SqliteConnection> connection(new SqliteConnection(options.path));
  const int access =
      options.read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  const int opened =
      sqlite3_open_v2(options.path.c_str(), &connection->handle_,
                      access | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_NOMUTEX,
                      options.vfs.empty() ? nullptr : options.vfs.c_str());
  if (opened != SQLITE_OK) return connection->ErrorOf(opened);
  sqlite3_busy_timeout(connection->handle_, kBusyMilliseconds);
  // An earlier release or a crash may have left a log that is good; only the store decides when it
  // goes, by checkpoints that it sees succeed.
  sqlite3_db_config(connection->handle_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  sqlite3_db_config(connection->handle_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  RETURN_IF_ERROR(connection->Execute(kSettings));
  // After the settings: that of wal_autocheckpoint takes any hook away.
  sqlite3_wal_hook(connection->handle_, &RememberWalPages, &connection->wal_pages_);
  return connection;
}

SqliteConnection::~SqliteConnection() { sqlite3_close_v2(handle_); }

absl::Status SqliteConnection::ErrorOf(int code) {
  const std::string message = absl::StrCat(
      "store file ", path_, ": ",
      handle_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(handle_), " (SQLite ", code, ")");
  switch (code & 0xff) {
    case SQLITE_OK:
      return absl::OkStatus();
    case SQLITE_FULL:
      return StoreError(StoreErrorKind::kFull, message);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return StoreError(StoreErrorKind::kDamaged, message);
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return StoreError(StoreErrorKind::kUnusable, message);
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_NOMEM:
    case SQLITE_PROTOCOL:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::Status SqliteConnection::Execute(const std::string& sql) {
  return ErrorOf(sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr));
}

absl::StatusOr<SqliteStatement> SqliteConnection::Prepare(absl::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int prepared = sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()),
                                          SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (prepared != SQLITE_OK) return ErrorOf(prepared);
  return SqliteStatement(*this, statement);
}

absl::StatusOr<int64_t> SqliteConnection::ReadInt(absl::string_view sql) {
  ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(sql));
  ASSIGN_OR_RETURN(const bool found, statement.Step());
  if (!found) return absl::NotFoundError(absl::StrCat("store file ", path_, ": no row: ", sql));
  return statement.Int(0);
}

absl::StatusOr<std::string> SqliteConnection::ReadText(absl::string_view sql) {
  ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(sql));
  ASSIGN_OR_RETURN(const bool found, statement.Step());
  if (!found) return absl::NotFoundError(absl::StrCat("store file ", path_, ": no row: ", sql));
  return std::string(statement.Bytes(0));
}

int64_t SqliteConnection::changes() const { return sqlite3_changes64(handle_); }

void SqliteConnection::Rollback() {
  if (sqlite3_get_autocommit(handle_) != 0) return;
  sqlite3_exec(handle_, "ROLLBACK", nullptr, nullptr, nullptr);
}

absl::StatusOr<bool> SqliteConnection::RunCheckpoint(Checkpoint kind) {
  const int mode =
      kind == Checkpoint::kPassive ? SQLITE_CHECKPOINT_PASSIVE : SQLITE_CHECKPOINT_TRUNCATE;
  const int done = sqlite3_wal_checkpoint_v2(handle_, nullptr, mode, nullptr, nullptr);
  if ((done & 0xff) == SQLITE_BUSY) return false;
  RETURN_IF_ERROR(ErrorOf(done));
  wal_pages_ = 0;
  return true;
}

absl::Status SqliteConnection::CopyFrom(SqliteConnection& source) {
  sqlite3_backup* backup = sqlite3_backup_init(handle_, "main", source.handle_, "main");
  if (backup == nullptr) return ErrorOf(sqlite3_extended_errcode(handle_));
  sqlite3_backup_step(backup, -1);
  const int finished = sqlite3_backup_finish(backup);
  if (finished != SQLITE_OK) return ErrorOf(finished);
  return absl::OkStatus();
}

SqliteStatement::SqliteStatement(SqliteStatement&& other) noexcept
    : connection_(other.connection_), statement_(std::exchange(other.statement_, nullptr)) {}

SqliteStatement::~SqliteStatement() { sqlite3_finalize(statement_); }

SqliteStatement& SqliteStatement::Bind(int parameter, int64_t number) {
  CHECK_EQ(sqlite3_bind_int64(statement_, parameter, number), SQLITE_OK);
  return *this;
}

SqliteStatement& SqliteStatement::Bind(int parameter, absl::string_view bytes) {
  // Null would be NULL, not empty bytes.
  const void* data = bytes.empty() ? "" : bytes.data();
  CHECK_EQ(sqlite3_bind_blob64(statement_, parameter, data, bytes.size(), SQLITE_STATIC), SQLITE_OK)
      << bytes.size() << " bytes";
  return *this;
}

SqliteStatement& SqliteStatement::BindNull(int parameter) {
  CHECK_EQ(sqlite3_bind_null(statement_, parameter), SQLITE_OK);
  return *this;
}

absl::StatusOr<bool> SqliteStatement::Step() {
  const int stepped = sqlite3_step(statement_);
  if (stepped == SQLITE_ROW) return true;
  if (stepped == SQLITE_DONE) return false;
  const absl::Status error = connection_->ErrorOf(stepped);
  Reset();
  return error;
}

bool SqliteStatement::IsNull(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

int64_t SqliteStatement::Int(int column) const { return sqlite3_column_int64(statement_, column); }

absl::string_view SqliteStatement::Bytes(int column) const {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  const int size = sqlite3_column_bytes(statement_, column);
  return bytes == nullptr ? absl::string_view() : absl::string_view(bytes, size);
}

void SqliteStatement::Reset() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

absl::Status SqliteStatement::Run() {
  absl::StatusOr<bool> more = true;
  while (more.ok() && *more) more = Step();
  Reset();
  return more.status();
}

}  // namespace crossmesh
