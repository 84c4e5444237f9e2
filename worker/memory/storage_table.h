#pragma once

#include "common/base/byte_count.h"
#include "common/base/mutex.h"
#include "worker/memory/arena.h"
#include "worker/memory/storage_status.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

class BoundExtents;
class SequencePage;

// Host memory for a storage, named after it. As Arena::Create.
absl::StatusOr<std::shared_ptr<Arena>> MakeHostArena(const StorageKey& key, ByteCount bytes,
                                                     Arena::Pages pages);

// The storages of a worker, their leases and the flip at commit. Thread-safe; never blocks.
//
// Invariants: an arena that a lease names stays mapped until the lease is released; at most one
// writer per storage; under kInPlace no reader while DIRTY, nor of a storage of user memory that
// has a byte of it; a shadow replaces the current arena only in Commit, so that a reader sees the
// old bytes or the new ones, never both.
//
// A lease says what uses it, e.g. "operation op-1, attempt 1"; what a lease stands in the way of is
// refused with that name.
//
// A storage of a GPU is there before its memory is, for which its users wait. One whose memory
// could not be made is as good as none. One whose memory the GPU has lost stays, so that what it
// held is not taken for something that never was: it is refused with the cause.
class StorageTable {
 public:
  // A right to use one arena. Released by destruction. Move-only.
  class Lease;

  // Makes an arena for a storage. Thread-safe, never blocks.
  using MakeArena =
      std::function<absl::StatusOr<std::shared_ptr<Arena>>(const StorageKey&, ByteCount)>;

  // What uses a lease that no operation has.
  static constexpr absl::string_view kOwnProcess = "the worker's process";

  explicit StorageTable(MakeArena make_arena) : make_arena_(std::move(make_arena)) {}
  // Of host memory alone.
  explicit StorageTable(Arena::Pages pages);
  StorageTable(const StorageTable&) = delete;
  StorageTable& operator=(const StorageTable&) = delete;

  // The current arena with its status, for handing its descriptor out.
  struct Opened {
    std::shared_ptr<Arena> arena;
    StorageStatus status;
  };
  // Makes it unless it is there with this size, and opens it; one that is LOST is made anew.
  // AlreadyExists when the name is taken with another size; what the maker of arenas says:
  // ResourceExhausted without memory, Unavailable when a GPU is not up.
  absl::StatusOr<Opened> Create(const StorageKey& key, int64_t bytes);
  // Lends memory of the embedding process, for operations in place alone: a shadow would take the
  // place of that memory. AlreadyExists when the name is taken.
  absl::Status Adopt(const StorageKey& key, std::shared_ptr<Arena> arena);
  // Puts memory that a user process has in the place of what the storage has, whose generation is
  // `generation`, 0 for none; READY, one generation later, without a shadow. Lasts for operations
  // in place alone: a shadow would take the place of that memory. AlreadyExists when there should
  // be none; Aborted when the generation is another one; FailedPrecondition while leased, or when
  // the storage's memory is not of this kind; NotFound.
  absl::StatusOr<Opened> Bind(const StorageKey& key, std::shared_ptr<Arena> arena,
                              uint64_t generation,
                              std::shared_ptr<const BoundExtents> extents = nullptr);
  // The page of its StorageSequence, made when it is first asked for, with the storage's status.
  // From then on leases are refused while the user's word is odd, unless they have a shadow.
  // NotFound; FailedPrecondition when LOST; as Arena::Create.
  absl::StatusOr<Opened> OpenSequence(const StorageKey& key);
  // FailedPrecondition while leased; NotFound.
  absl::Status Delete(const StorageKey& key);
  // Frees the shadow, if there is one; the next writer that wants one makes it anew.
  // FailedPrecondition while it is leased: written, or read as the version before; NotFound.
  absl::Status Trim(const StorageKey& key);
  std::vector<StorageStatus> List() const;
  StorageBytes Bytes() const;
  // NotFound; FailedPrecondition when LOST.
  absl::StatusOr<StorageStatus> Status(const StorageKey& key) const;
  // As Status. One that is DIRTY is handed out as well, since its owner may have to fill it anew.
  absl::StatusOr<Opened> Open(const StorageKey& key) const;

  // For a source of `bytes` bytes. NotFound; FailedPrecondition when DIRTY or LOST, of another
  // size, made by a writer that has not committed yet, or in use by a process that has its memory.
  absl::StatusOr<Lease> LeaseForReading(const StorageKey& key, int64_t bytes,
                                        absl::string_view user = kOwnProcess);

  // For a source that is given up: no other lease may be there, and it is DIRTY from now on, so
  // that there is none, and stays so unless the lease ends before Lease::BeginWriting. The memory
  // takes `spared_bytes` less of its budget meanwhile. As LeaseForReading; FailedPrecondition as
  // well while there are leases, and for memory whose pages cannot be given back: of a GPU, of a
  // user process, huge ones.
  struct Consuming {
    int64_t spared_bytes = 0;
    std::string user = std::string(kOwnProcess);
  };
  absl::StatusOr<Lease> LeaseForConsuming(const StorageKey& key, int64_t bytes,
                                          const Consuming& how);
  // Ends a lease for consuming, and deletes its storage.
  void Consume(Lease lease);

  struct Writing {
    // A second arena, kept from commit to commit, so that a steady stream of versions allocates
    // nothing. Else in place: the storage turns DIRTY, and stays so unless the lease ends before
    // Lease::BeginWriting.
    bool shadow = true;
    // Makes the storage where there is none. Unless the lease is committed, or the storage is
    // created by others meanwhile, it goes again with the lease.
    bool create = false;
    std::string user = std::string(kOwnProcess);
  };
  // For a destination. FailedPrecondition when LOST, in place while readers or a process hold it,
  // and with a shadow of a user process's memory. Aborted when another writer has it. NotFound when
  // there is no such storage, and it is not to be made. What the maker of arenas says.
  absl::StatusOr<Lease> LeaseForWriting(const StorageKey& key, int64_t bytes, const Writing& how);
  // Makes what was written current and READY, ends the lease, adds 1 to the generation. Readers of
  // the old arena keep it until they release. FailedPrecondition when the lease is not one for
  // writing; as CheckUndisturbed, after which the storage stays DIRTY.
  absl::Status Commit(Lease lease);

 private:
  // A lease, as the table sees it.
  struct Use {
    std::string user;
    const Arena* arena = nullptr;
    bool writes = false;
  };
  struct Entry {
    std::shared_ptr<Arena> current;
    std::shared_ptr<Arena> alternate;  // the shadow; none until one is wanted
    uint64_t generation = 1;
    StorageState state = StorageState::kReady;
    bool provisional = false;                     // made for the writer that it has
    std::list<Use> uses;                          // leases find theirs
    std::shared_ptr<const BoundExtents> extents;  // null: no memory of a user process
    std::shared_ptr<SequencePage> sequence;       // null: nobody has asked for it
  };

  // Why memory that a user process has may not take the place of the entry's.
  static absl::Status CheckBindable(const StorageKey& key, const Entry& entry, const Arena& arena,
                                    uint64_t generation);
  static StorageStatus StatusOf(const StorageKey& key, const Entry& entry);
  static const Use* WriterOf(const Entry& entry);  // null: none
  // In words, of those of `arena`, or of all.
  static std::string UsersOf(const Entry& entry, const Arena* arena = nullptr);
  static int64_t ShadowBytesOf(const Entry& entry);
  absl::StatusOr<Entry*> FindLocked(const StorageKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops one that failed or is lost, unless it has leases.
  void MakeWayLocked(const StorageKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Entry*> FindOrMakeLocked(const StorageKey& key, int64_t bytes, bool create)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What a writer may write.
  absl::StatusOr<std::shared_ptr<Arena>> ArenaForWriting(const StorageKey& key, int64_t bytes,
                                                         Entry& entry, bool shadow);
  // FailedPrecondition when a storage that has some of the same bytes stands in the way.
  absl::Status CheckSharersLocked(const StorageKey& key, const Entry& entry, bool writes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It was made for a writer, which is gone.
  void DropIfProvisionalLocked(const StorageKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Its user's word; FailedPrecondition while a process uses it.
  static absl::StatusOr<uint64_t> UserAtRest(const Entry& entry);
  static void NextGeneration(Entry& entry);
  void Release(const Lease& lease);

  const MakeArena make_arena_;
  mutable Mutex mutex_;
  // An entry with leases stays, so keys of leases are always found.
  absl::flat_hash_map<StorageKey, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

// Thread-compatible.
class StorageTable::Lease {
 public:
  Lease(Lease&& other) noexcept
      : table_(std::exchange(other.table_, nullptr)),
        key_(std::move(other.key_)),
        arena_(std::move(other.arena_)),
        use_(other.use_),
        state_unwritten_(other.state_unwritten_),
        spared_bytes_(std::exchange(other.spared_bytes_, 0)),
        sequence_(std::move(other.sequence_)),
        user_at_rest_(other.user_at_rest_) {}
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { End(); }

  std::span<std::byte> bytes() const { return arena_->bytes(); }
  const StorageKey& key() const { return key_; }
  bool can_release() const { return arena_->can_release(); }
  void UseSmallPages() const { arena_->UseSmallPages(); }
  // From here on bytes may have changed, whether or not the lease is committed.
  void BeginWriting() { state_unwritten_.reset(); }
  // Aborted when a process has used the memory since the lease began, and says so by its word.
  absl::Status CheckUndisturbed() const;

 private:
  friend class StorageTable;
  Lease(StorageTable& table, StorageKey key, std::shared_ptr<Arena> arena,
        std::list<Use>::iterator use)
      : table_(&table), key_(std::move(key)), arena_(std::move(arena)), use_(use) {}
  void End();

  StorageTable* table_;  // none: ended
  StorageKey key_;
  std::shared_ptr<Arena> arena_;
  std::list<Use>::iterator use_;  // in the entry of key_, until the lease has ended
  // Of a lease in place before BeginWriting: what the storage was, and is again if nothing is
  // written.
  std::optional<StorageState> state_unwritten_;
  int64_t spared_bytes_ = 0;  // that the arena's budget is charged again at the end
  std::shared_ptr<const SequencePage> sequence_;  // null: there is none to look at
  uint64_t user_at_rest_ = 0;                     // its user's word as the lease began
};

}  // namespace crossmesh
