#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

struct sqlite3;
struct sqlite3_stmt;

namespace crossmesh {

class SqliteStatement;

// A connection to a database file. Errors name the file and what SQLite says: StoreError kFull,
// kDamaged or kUnusable (read-only) where it is one of these, Unavailable for what the disk or a
// lock refuses, Internal for the rest. Thread-compatible.
class SqliteConnection {
 public:
  struct Options {
    std::string path;
    std::string vfs;         // its name; empty: that of the system
    bool read_only = false;  // else the file is made when there is none
  };
  // Follows no symbolic link in `path`.
  static absl::StatusOr<std::unique_ptr<SqliteConnection>> Open(const Options& options);
  // Leaves the write-ahead log as it is: closing writes nothing.
  ~SqliteConnection();
  SqliteConnection(const SqliteConnection&) = delete;
  SqliteConnection& operator=(const SqliteConnection&) = delete;

  // One or more statements, without their rows.
  absl::Status Execute(const std::string& sql);
  absl::StatusOr<SqliteStatement> Prepare(absl::string_view sql);
  // The first column of the first row; NotFound when there is no row.
  absl::StatusOr<int64_t> ReadInt(absl::string_view sql);
  absl::StatusOr<std::string> ReadText(absl::string_view sql);

  // Rows that the newest statement has inserted or deleted.
  int64_t changes() const;
  // Ends a transaction that may have ended by itself.
  void Rollback();

  // Moves what the write-ahead log has into the database file: as far as readers allow, or all of
  // it, and empties the log. False: readers did not end in time.
  enum class Checkpoint { kPassive, kTruncate };
  absl::StatusOr<bool> RunCheckpoint(Checkpoint kind);
  // Pages of the write-ahead log after the newest commit of this connection.
  int wal_pages() const { return wal_pages_; }

  // Copies the whole of another database over this one, from one moment of it.
  absl::Status CopyFrom(SqliteConnection& source);

  sqlite3* handle() { return handle_; }
  absl::Status ErrorOf(int code);

 private:
  explicit SqliteConnection(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  sqlite3* handle_ = nullptr;
  int wal_pages_ = 0;
};

// A prepared statement; goes before its connection does. Thread-compatible.
class SqliteStatement {
 public:
  SqliteStatement(SqliteConnection& connection, sqlite3_stmt* statement)
      : connection_(&connection), statement_(statement) {}
  SqliteStatement(SqliteStatement&& other) noexcept;
  SqliteStatement& operator=(SqliteStatement&& other) = delete;
  ~SqliteStatement();

  // Parameters count from one. Bytes must stay where they are until the statement is reset.
  SqliteStatement& Bind(int parameter, int64_t number);
  SqliteStatement& Bind(int parameter, absl::string_view bytes);
  SqliteStatement& BindNull(int parameter);

  // Is there another row? Columns count from zero, and are read from the row before the next step.
  absl::StatusOr<bool> Step();
  bool IsNull(int column) const;
  int64_t Int(int column) const;
  absl::string_view Bytes(int column) const;

  // Ready to be bound and stepped again.
  void Reset();
  // Steps to the end and resets.
  absl::Status Run();

 private:
  SqliteConnection* connection_;
  sqlite3_stmt* statement_;
};

}  // namespace crossmesh
