#include "tests/simulation/simulated_state_folder.h"

#include "common/base/status_macros.h"
#include "common/testing/temporary_folder.h"
#include "controller/store/forwarding_store.h"
#include "controller/store/sqlite/sqlite_store.h"

#include <iterator>
#include <utility>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

// So few that clients which were away find some forgotten.
constexpr int64_t kCommitsKeptOnDisk = 20;
constexpr int64_t kFreeBytes = int64_t{1} << 40;

constexpr absl::string_view kLog = "store.db-wal";
constexpr absl::string_view kFiles[] = {"store.db", kLog, "watermark"};

}  // namespace

// Tells when the process cannot go on.
class SimulatedStateFolder::Store final : public ForwardingStore {
 public:
  Store(SimulatedStateFolder& folder, std::unique_ptr<SqliteStore> sqlite)
      : ForwardingStore(*sqlite), folder_(folder), sqlite_(std::move(sqlite)) {}

  SqliteStore& sqlite() { return *sqlite_; }

  void CommitThen(StoreTransaction transaction, CommitDone done) override {
    absl::StatusOr<int64_t> result = sqlite_->Commit(std::move(transaction));
    const bool is_over =
        folder_.disk_.is_off() || folder_.has_failed_ || absl::IsDataLoss(result.status());
    done(std::move(result));
    if (is_over) folder_.on_end_();
  }

 private:
  SimulatedStateFolder& folder_;
  const std::unique_ptr<SqliteStore> sqlite_;
};

SimulatedStateFolder::SimulatedStateFolder(SimulatedNode& node, uint64_t seed,
                                           std::function<void()> on_end)
    : node_(node),
      on_end_(std::move(on_end)),
      folder_(std::make_unique<TemporaryFolder>()),
      disk_(seed) {
  disk_.AskBefore([&node] { return node.HaveEffect(); });
}

SimulatedStateFolder::~SimulatedStateFolder() { Close(); }

absl::Status SimulatedStateFolder::Open() {
  if (disk_.is_off()) {
    disk_.PowerOn();
    has_lost_power_ = true;
  }
  // With the power the watermark may have lost its last half second, and then nothing tells of a
  // log that has lost its end besides (ADR 34).
  if (has_lost_power_ && log_has_flips_) disk_.Load(*before_flips_);
  absl::Status opened = OpenStore();
  // A bit of the schema's version makes it one of a newer release.
  const bool is_refused = absl::IsDataLoss(opened) || absl::IsFailedPrecondition(opened);
  if (is_refused && before_flips_.has_value()) {
    disk_.Load(*before_flips_);
    opened = OpenStore();
  }
  if (opened.ok()) {
    before_flips_.reset();
    log_has_flips_ = has_lost_power_ = false;
  }
  return opened;
}

absl::Status SimulatedStateFolder::OpenStore() {
  has_failed_ = false;
  ASSIGN_OR_RETURN(std::unique_ptr<SqliteStore> sqlite,
                   SqliteStore::Open({.folder = folder_->PathOf("state"),
                                      .clock = node_.clock(),
                                      .commits_kept = kCommitsKeptOnDisk,
                                      .reserve_bytes = 0,
                                      .free_bytes = [] { return kFreeBytes; },
                                      .has_threads = false,
                                      .vfs = disk_.vfs(),
                                      .on_fatal = [this](const auto&) { has_failed_ = true; }}));
  store_ = std::make_unique<Store>(*this, std::move(sqlite));
  return absl::OkStatus();
}

MetadataStore& SimulatedStateFolder::store() { return *store_; }

uint64_t SimulatedStateFolder::next_epoch() const { return store_->sqlite().next_epoch(); }

void SimulatedStateFolder::Close() {
  disk_.CutOff();
  store_ = nullptr;
}

void SimulatedStateFolder::FlipBit(double place) {
  if (!before_flips_.has_value()) before_flips_ = disk_.Save();
  int64_t bits = 0;
  for (const absl::string_view file : kFiles) bits += 8 * std::ssize(disk_.Read(file));
  auto bit = static_cast<int64_t>(place * static_cast<double>(bits));
  for (const absl::string_view file : kFiles) {
    const int64_t bits_here = 8 * std::ssize(disk_.Read(file));
    if (bit < bits_here) {
      log_has_flips_ = log_has_flips_ || file == kLog;
      return disk_.FlipBit(file, bit);
    }
    bit -= bits_here;
  }
}

}  // namespace crossmesh
