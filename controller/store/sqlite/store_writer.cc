#include "controller/store/sqlite/store_writer.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "controller/store/store_error.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kWriterTick = absl::Milliseconds(500);
constexpr absl::Duration kFailuresWithin = absl::Minutes(1);
// Pages of the log after which it is moved into the database.
constexpr int kLogPagesMax = 1000;
constexpr int64_t kTogetherBytesMax = int64_t{64} << 20;

int64_t TransactionBytes(const StoreTransaction& transaction) {
  int64_t bytes = 0;
  for (const StoreTransaction::Write& write : transaction.writes) {
    bytes += static_cast<int64_t>(write.key.size());
    if (write.value.has_value()) bytes += static_cast<int64_t>(write.value->size());
  }
  return bytes;
}

// Of its own: a status that threads share is counted by code that ThreadSanitizer cannot see.
absl::Status Unshared(const absl::Status& status) {
  const std::optional<StoreErrorKind> kind = StoreErrorKindOf(status);
  return kind.has_value() ? StoreError(*kind, status.message())
                          : absl::Status(status.code(), status.message());
}

bool OnlyDeletes(const StoreTransaction& transaction) {
  return !transaction.writes.empty() &&
         std::ranges::none_of(transaction.writes,
                              [](const auto& write) { return write.value.has_value(); });
}

bool IsOf(StoreErrorKind kind, const absl::Status& status) {
  return StoreErrorKindOf(status) == kind;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoreWriter>> StoreWriter::Start(const Parts& parts,
                                                                OpenedDatabase opened) {
  std::unique_ptr<StoreWriter> writer(new StoreWriter(parts, std::move(opened)));
  RETURN_IF_ERROR(writer->Attach());
  writer->space_.RestoreReserve();
  if (parts.options.has_threads) {
    writer->thread_ = Thread("store-writer", [writer = writer.get()] { writer->Run(); });
  }
  return writer;
}

StoreWriter::StoreWriter(const Parts& parts, OpenedDatabase opened)
    : parts_(parts),
      database_(std::move(opened)),
      space_(parts.folder, parts.options),
      synced_at_(parts.options.clock.Monotonic()),
      emptied_at_(synced_at_) {}

StoreWriter::~StoreWriter() {
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
    has_work_.SignalAll();
  }
  if (!parts_.options.has_threads) Close();
  thread_.Join();
}

// Takes the newly opened database as what is true.
absl::Status StoreWriter::Attach() {
  ASSIGN_OR_RETURN(writer_,
                   CommitWriter::Create(*database_.connection, parts_.index, database_.scan,
                                        {.commits_kept = parts_.options.commits_kept,
                                         .journal_bytes_max = parts_.options.journal_bytes_max}));
  parts_.index.Replace(std::move(database_.scan.contents));
  database_.scan = {};
  return absl::OkStatus();
}

void StoreWriter::CommitThen(StoreTransaction transaction, MetadataStore::CommitDone done) {
  const int64_t bytes = TransactionBytes(transaction);
  absl::Status refused;
  {
    const MutexLock lock(mutex_);
    if (!damage_.ok()) {
      refused = Unshared(damage_);
    } else if (waiting_.size() >= kWaitingMax || bytes > kWaitingBytesMax - waiting_bytes_) {
      refused = absl::ResourceExhaustedError(
          absl::StrCat("store: expected at most ", kWaitingMax, " transactions of ",
                       kWaitingBytesMax, " bytes to wait, found ", waiting_.size(), " of ",
                       waiting_bytes_, " before one of ", bytes));
    } else {
      waiting_bytes_ += bytes;
      waiting_.push_back({std::move(transaction), std::move(done), bytes});
      has_work_.Signal();
    }
  }
  if (!refused.ok()) return done(refused);
  if (!parts_.options.has_threads) RunDue();
}

void StoreWriter::RunDue() {
  int64_t asked = 0;
  {
    const MutexLock lock(mutex_);
    asked = ++due_asked_;
    has_work_.Signal();
  }
  if (!parts_.options.has_threads) RunOnce();
  const MutexLock lock(mutex_);
  while (due_done_ < asked) has_done_due_.Wait(mutex_);
}

absl::Status StoreWriter::ReleaseReserve() { return space_.ReleaseReserve(); }

void StoreWriter::ReportDamage(const absl::Status& damage) {
  {
    const MutexLock lock(mutex_);
    if (!damage_.ok()) return;
    damage_ = Unshared(damage);
  }
  LogError("store_damaged", {{"folder", parts_.folder.path()}, {"status", damage.message()}});
}

absl::Status StoreWriter::damage() const {
  const MutexLock lock(mutex_);
  return Unshared(damage_);
}

absl::Status StoreWriter::readable() const {
  if (!is_uncertain_) return absl::OkStatus();
  const MutexLock lock(mutex_);
  return Unshared(readable_);
}

StoreWriter::Figures StoreWriter::figures() const {
  const MutexLock lock(mutex_);
  return figures_;
}

void StoreWriter::Run() {
  while (RunOnce()) {
  }
  Close();
}

bool StoreWriter::RunOnce() {
  std::vector<Waiting> batch;
  if (!WaitForWork(batch)) return false;
  if (!batch.empty()) CommitBatch(std::move(batch));
  DoWhatIsDue();
  return true;
}

void StoreWriter::Close() {
  if (is_uncertain_ || !damage().ok()) return;
  // The next one that opens it has nothing to recover.
  const absl::Status emptied =
      database_.connection->RunCheckpoint(SqliteConnection::Checkpoint::kTruncate).status();
  const absl::Status synced = database_.watermark->Sync();
  for (const absl::Status& status : {emptied, synced}) {
    if (!status.ok()) LogWarning("store_close_failed", {{"status", status.message()}});
  }
}

// False when it is to stop, and nothing waits.
bool StoreWriter::WaitForWork(std::vector<Waiting>& batch) {
  const MutexLock lock(mutex_);
  while (waiting_.empty() && !is_stopping_ && due_asked_ == due_done_) {
    if (has_work_.WaitFor(mutex_, kWriterTick)) break;
  }
  int64_t bytes = 0;
  while (!waiting_.empty() && batch.size() < kTogetherMax && bytes < kTogetherBytesMax) {
    bytes += waiting_.front().bytes;
    batch.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  waiting_bytes_ -= bytes;
  return !batch.empty() || !is_stopping_;
}

void StoreWriter::CommitBatch(std::vector<Waiting> batch) {
  RefuseWithoutRoom(batch);
  if (batch.empty()) return;
  absl::StatusOr<std::vector<absl::StatusOr<int64_t>>> results = Write(batch);
  const absl::Status error = results.status();
  if (IsOf(StoreErrorKind::kDamaged, error)) {
    ReportDamage(error);
  } else if (!error.ok() && !IsOf(StoreErrorKind::kFull, error)) {
    results = absl::UnavailableError(
        absl::StrCat("whether it was committed only a read says: ", error.message()));
    Recover(error);
  }
  for (size_t i = 0; i < batch.size(); ++i) {
    batch[i].done(results.ok() ? std::move((*results)[i])
                               : absl::StatusOr<int64_t>(Unshared(results.status())));
  }
}

void StoreWriter::RefuseWithoutRoom(std::vector<Waiting>& batch) {
  int64_t bytes = 0;
  bool is_full = false;
  std::erase_if(batch, [&](Waiting& waiting) {
    const auto kind =
        OnlyDeletes(waiting.transaction) ? StoreSpace::Kind::kDelete : StoreSpace::Kind::kWrite;
    absl::Status room = space_.Check(kind, bytes + waiting.bytes);
    if (room.ok()) {
      bytes += waiting.bytes;
      return false;
    }
    is_full = true;
    waiting.done(std::move(room));
    return true;
  });
  bool was_full = false;
  {
    const MutexLock lock(mutex_);
    was_full = std::exchange(figures_.is_full, is_full);
  }
  if (is_full && !was_full) {
    LogWarning("store_full",
               {{"folder", parts_.folder.path()}, {"free_bytes", space_.free_bytes()}});
  }
}

absl::StatusOr<std::vector<absl::StatusOr<int64_t>>> StoreWriter::Write(
    std::vector<Waiting>& batch) {
  RETURN_IF_ERROR(damage());
  if (is_uncertain_) RETURN_IF_ERROR(Reopen());
  std::vector<StoreTransaction> transactions;
  bool are_deletes = true;
  for (Waiting& waiting : batch) {
    are_deletes = are_deletes && OnlyDeletes(waiting.transaction);
    transactions.push_back(std::move(waiting.transaction));
  }
  ASSIGN_OR_RETURN(std::vector<absl::StatusOr<int64_t>> results, writer_->Commit(transactions));
  // From here on it is committed, so nothing that fails changes the answer.
  absl::Status after = WriteMark();
  if (after.ok() && are_deletes && !space_.Check(StoreSpace::Kind::kWrite, 0).ok()) {
    after = MakeRoom();
  }
  if (IsOf(StoreErrorKind::kDamaged, after)) {
    ReportDamage(after);
  } else if (!after.ok() && !IsOf(StoreErrorKind::kFull, after)) {
    Recover(after);
  }
  return results;
}

absl::Status StoreWriter::WriteMark() {
  const StoreHead& head = writer_->head();
  return database_.watermark->Write(
      {.revision = head.revision, .chain = head.chain, .epoch = head.epoch});
}

// What deletes leave is given back to the file system.
absl::Status StoreWriter::MakeRoom() {
  RETURN_IF_ERROR(writer_->ForgetCommits());
  RETURN_IF_ERROR(database_.connection->Execute("PRAGMA incremental_vacuum"));
  return database_.connection->RunCheckpoint(SqliteConnection::Checkpoint::kTruncate).status();
}

void StoreWriter::DoWhatIsDue() {
  int64_t asked = 0;
  {
    const MutexLock lock(mutex_);
    asked = due_asked_;
  }
  const absl::Status done = DoDue(parts_.options.clock.Monotonic());
  if (!done.ok() && !IsOf(StoreErrorKind::kFull, done)) Recover(done);
  const MutexLock lock(mutex_);
  due_done_ = asked;
  has_done_due_.SignalAll();
}

absl::Status StoreWriter::DoDue(absl::Duration now) {
  using Checkpoint = SqliteConnection::Checkpoint;
  if (!damage().ok() || figures().is_fatal) return absl::OkStatus();
  if (is_uncertain_) return Reopen();
  if (now - emptied_at_ >= parts_.options.checkpoint_interval) {
    emptied_at_ = now;
    // Where readers do not end the next time will do.
    RETURN_IF_ERROR(database_.connection->RunCheckpoint(Checkpoint::kTruncate).status());
  }
  if (database_.connection->wal_pages() >= kLogPagesMax) {
    RETURN_IF_ERROR(database_.connection->RunCheckpoint(Checkpoint::kPassive).status());
  }
  if (now - synced_at_ >= kWriterTick) {
    synced_at_ = now;
    RETURN_IF_ERROR(database_.watermark->Sync());
    space_.RestoreReserve();
  }
  return absl::OkStatus();
}

void StoreWriter::Recover(const absl::Status& failure) {
  if (figures().is_fatal) return;
  const absl::Duration now = parts_.options.clock.Monotonic();
  while (!failures_.empty() && now - failures_.front() > kFailuresWithin) failures_.pop_front();
  failures_.push_back(now);
  LogError("store_disk_failed", {{"folder", parts_.folder.path()},
                                 {"status", failure.message()},
                                 {"failures", failures_.size()}});
  {
    const MutexLock lock(mutex_);
    ++figures_.disk_failures;
  }
  if (failures_.size() >= kFailuresMax) return GiveUp(failure);
  if (const absl::Status reopened = Reopen(); !reopened.ok() && failures_.size() < kFailuresMax) {
    LogWarning("store_not_reopened", {{"status", reopened.message()}});
  }
}

absl::Status StoreWriter::Reopen() {
  if (figures().is_fatal) return readable();
  writer_.reset();
  database_ = {};
  parts_.readers.DropAll();
  absl::StatusOr<OpenedDatabase> opened = OpenDatabase(parts_.folder, parts_.options);
  absl::Status attached = opened.status();
  if (opened.ok()) {
    database_ = *std::move(opened);
    attached = Attach();
  }
  if (IsOf(StoreErrorKind::kDamaged, attached)) ReportDamage(attached);
  {
    const MutexLock lock(mutex_);
    readable_ = attached;
  }
  // Until it is known what the disk has, nothing is said of it.
  is_uncertain_ = !attached.ok();
  return attached;
}

void StoreWriter::GiveUp(const absl::Status& failure) {
  const absl::Status fatal = absl::UnavailableError(
      absl::StrCat("store ", parts_.folder.path(), ": its disk failed ", kFailuresMax,
                   " times within a minute, at last with: ", failure.message()));
  writer_.reset();
  database_ = {};
  {
    const MutexLock lock(mutex_);
    figures_.is_fatal = true;
    readable_ = fatal;
  }
  is_uncertain_ = true;
  LogError("store_gives_up", {{"status", fatal.message()}});
  if (parts_.options.on_fatal) parts_.options.on_fatal(fatal);
}

}  // namespace crossmesh
