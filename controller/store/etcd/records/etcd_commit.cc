#include "controller/store/etcd/records/etcd_commit.h"

#include "common/base/digest.h"
#include "crossmesh/v1/etcd_record.pb.h"

#include <algorithm>
#include <optional>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

using etcdserverpb::Compare;
using etcdserverpb::KeyValue;
using etcdserverpb::TxnRequest;

Compare& AddCompare(TxnRequest& request, Compare::CompareTarget target, std::string key) {
  Compare& compare = *request.add_compare();
  compare.set_target(target);
  compare.set_key(std::move(key));
  return compare;
}

void AddRead(TxnRequest& request, std::string key, bool keys_only) {
  etcdserverpb::RangeRequest& read = *request.add_failure()->mutable_request_range();
  read.set_key(std::move(key));
  read.set_keys_only(keys_only);
}

void AddPut(TxnRequest& request, std::string key, std::string value) {
  etcdserverpb::PutRequest& put = *request.add_success()->mutable_request_put();
  put.set_key(std::move(key));
  put.set_value(std::move(value));
}

void AddDeletion(TxnRequest& request, std::string key, std::string range_end) {
  etcdserverpb::DeleteRangeRequest& deletion =
      *request.add_success()->mutable_request_delete_range();
  deletion.set_key(std::move(key));
  deletion.set_range_end(std::move(range_end));
}

void AddDeletionOfChunks(TxnRequest& request, const EtcdKeys& keys, const std::string& id) {
  AddDeletion(request, keys.ChunksOf(id), EtcdPrefixEnd(keys.ChunksOf(id)));
}

// The reads that tell why it was not done come first, in this order.
constexpr int kLeaderRead = 0;
constexpr int kEpochRead = 1;
constexpr int kCommitRead = 2;
constexpr int kRequirementReads = 3;

TxnRequest FencedRequest(const EtcdCommit::Context& context, uint64_t epoch) {
  TxnRequest request;
  AddCompare(request, Compare::CREATE, context.keys.leader()).set_create_revision(context.fence);
  Compare& seen = AddCompare(request, Compare::VALUE, context.keys.epoch());
  seen.set_result(Compare::LESS);
  seen.set_value(EpochText(epoch + 1));
  AddRead(request, context.keys.leader(), /*keys_only=*/true);
  AddRead(request, context.keys.epoch(), /*keys_only=*/false);
  AddRead(request, context.keys.commit(), /*keys_only=*/true);
  return request;
}

// Null: there is no such key.
const KeyValue* FoundBy(const etcdserverpb::TxnResponse& response, int read) {
  if (read >= response.responses_size()) return nullptr;
  const etcdserverpb::RangeResponse& range = response.responses(read).response_range();
  return range.kvs_size() == 0 ? nullptr : &range.kvs(0);
}

int64_t RevisionFoundBy(const etcdserverpb::TxnResponse& response, int read) {
  const KeyValue* found = FoundBy(response, read);
  return found == nullptr ? 0 : found->mod_revision();
}

absl::Status WhyFenced(uint64_t epoch, const EtcdCommit::Context& context,
                       const etcdserverpb::TxnResponse& response) {
  const KeyValue* stored = FoundBy(response, kEpochRead);
  const std::optional<uint64_t> seen =
      stored == nullptr ? std::nullopt : ParseEpochText(stored->value());
  if (!seen.has_value() || *seen > epoch) {
    return absl::AbortedError(
        absl::StrCat("epoch ", epoch, " is fenced: the store has seen ",
                     seen.has_value() ? absl::StrCat("epoch ", *seen) : "no epoch"));
  }
  const KeyValue* leader = FoundBy(response, kLeaderRead);
  const int64_t found = leader == nullptr ? 0 : leader->create_revision();
  if (found == context.fence) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("epoch ", epoch, " is fenced: expected the leader of revision ", context.fence,
                   ", found ", found == 0 ? "none" : absl::StrCat("that of revision ", found)));
}

}  // namespace

// Collects the requests of one commit.
class EtcdCommit::Builder {
 public:
  Builder(const StoreTransaction& transaction, const Context& context)
      : transaction_(transaction), context_(context) {}

  EtcdCommit Build() {
    commit_.last_ = FencedRequest(context_, transaction_.epoch);
    AddCompare(commit_.last_, Compare::MOD, context_.keys.commit())
        .set_mod_revision(context_.mirror.table().revision());
    for (const StoreTransaction::Requirement& required : transaction_.requirements) {
      const std::string key = context_.keys.Object(required.key);
      AddCompare(commit_.last_, Compare::MOD, key).set_mod_revision(required.revision);
      AddRead(commit_.last_, key, /*keys_only=*/true);
    }
    record_.set_epoch(transaction_.epoch);
    for (const StoreTransaction::Write& write : transaction_.writes) Add(write);
    if (transaction_.epoch > context_.mirror.epoch()) {
      AddPut(commit_.last_, context_.keys.epoch(), EpochText(transaction_.epoch));
    }
    AddPut(commit_.last_, context_.keys.commit(), record_.SerializeAsString());
    return std::move(commit_);
  }

 private:
  void Add(const StoreTransaction::Write& write) {
    v1::EtcdCommitRecord::Write& recorded = *record_.add_writes();
    recorded.set_key(write.key);
    recorded.set_deleted(!write.value.has_value());
    if (!write.value.has_value()) {
      AddDeletion(commit_.last_, context_.keys.Object(write.key), "");
    } else {
      AddPut(commit_.last_, context_.keys.Object(write.key),
             ObjectOf(*write.value).SerializeAsString());
    }
    const std::optional<std::string> replaced = context_.mirror.ChunksOf(write.key);
    if (replaced.has_value()) AddDeletionOfChunks(commit_.last_, context_.keys, *replaced);
  }

  v1::EtcdObjectRecord ObjectOf(absl::string_view value) {
    v1::EtcdObjectRecord object;
    if (inline_bytes_ + std::ssize(value) <= kChunkBytes) {
      inline_bytes_ += std::ssize(value);
      object.set_inline_value(std::string(value));
      return object;
    }
    v1::EtcdObjectRecord::Chunks& chunks = *object.mutable_chunks();
    chunks.set_id(absl::StrCat(context_.chunk_id, "-", objects_in_chunks_++));
    chunks.set_size_bytes(std::ssize(value));
    chunks.set_digest(Digest::Of(value).ToString());
    for (; !value.empty(); value.remove_prefix(std::min<size_t>(kChunkBytes, value.size()))) {
      TxnRequest request = FencedRequest(context_, transaction_.epoch);
      AddPut(request, context_.keys.Chunk(chunks.id(), chunks.count()),
             std::string(value.substr(0, kChunkBytes)));
      commit_.chunks_.push_back(std::move(request));
      chunks.set_count(chunks.count() + 1);
    }
    return object;
  }

  const StoreTransaction& transaction_;
  const Context& context_;
  EtcdCommit commit_;
  v1::EtcdCommitRecord record_;
  int64_t inline_bytes_ = 0;
  int objects_in_chunks_ = 0;
};

absl::StatusOr<EtcdCommit> EtcdCommit::Create(const StoreTransaction& transaction,
                                              const Context& context) {
  EtcdCommit commit = Builder(transaction, context).Build();
  if (static_cast<int64_t>(commit.last_.ByteSizeLong()) > kRequestBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "commit of ", transaction.writes.size(), " writes: expected at most ", kRequestBytesMax,
        " bytes of keys and small objects, found ", commit.last_.ByteSizeLong()));
  }
  return commit;
}

int EtcdCommit::operations() const {
  return std::max({last_.compare_size(), last_.success_size(), last_.failure_size()});
}

EtcdRefusal WhyRefused(const StoreTransaction& transaction, const EtcdCommit::Context& context,
                       const etcdserverpb::TxnResponse& response) {
  if (const absl::Status fenced = WhyFenced(transaction.epoch, context, response); !fenced.ok()) {
    return {.status = fenced};
  }
  for (int i = 0; i < std::ssize(transaction.requirements) &&
                  i + kRequirementReads < response.responses_size();
       ++i) {
    const StoreTransaction::Requirement& required = transaction.requirements[i];
    const int64_t revision = RevisionFoundBy(response, kRequirementReads + i);
    if (revision == required.revision) continue;
    return {.status =
                absl::AbortedError(absl::StrCat("object ", required.key, ": expected revision ",
                                                required.revision, ", found ", revision))};
  }
  return {.newest_commit = RevisionFoundBy(response, kCommitRead)};
}

TxnRequest DeletionOfChunks(const std::vector<std::string>& ids, const EtcdCommit::Context& context,
                            uint64_t epoch) {
  TxnRequest request = FencedRequest(context, epoch);
  for (const std::string& id : ids) AddDeletionOfChunks(request, context.keys, id);
  return request;
}

}  // namespace crossmesh
