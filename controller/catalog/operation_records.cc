#include "controller/catalog/operation_records.h"

#include "common/base/status_macros.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kOperationPrefix = "operation/";

std::string OperationKey(absl::string_view id) { return absl::StrCat(kOperationPrefix, id); }
std::string RequestKey(absl::string_view id) { return absl::StrCat("request/", id); }

}  // namespace

OperationRecords::OperationRecords(MetadataStore& store, uint64_t epoch, const Clock& clock,
                                   Options options)
    : store_(store), epoch_(epoch), clock_(clock), options_(options) {}

absl::StatusOr<std::optional<std::string>> OperationRecords::FindRequest(
    absl::string_view request_id, const Digest& content) const {
  const absl::StatusOr<StoredObject> object = store_.Get(RequestKey(request_id));
  if (absl::IsNotFound(object.status())) return std::nullopt;
  RETURN_IF_ERROR(object.status());
  const std::pair<std::string, std::string> stored = absl::StrSplit(object->value, ' ');
  if (stored.second == content.ToString()) return stored.first;
  return absl::AlreadyExistsError(absl::StrCat("request_id ", request_id, " began operation ",
                                               stored.first, " with other content"));
}

absl::Status OperationRecords::Begin(const OperationRecord& record) {
  StoreTransaction begin{
      .epoch = epoch_,
      .requirements = {{OperationKey(record.id), 0}, {RequestKey(record.request_id), 0}},
      .writes = {{OperationKey(record.id), record.bytes},
                 {RequestKey(record.request_id),
                  absl::StrCat(record.id, " ", record.content.ToString())}}};
  const MutexLock lock(mutex_);
  ForgetRequests(begin);
  RETURN_IF_ERROR(store_.Commit(begin).status());
  requests_.push_back({record.request_id, clock_.Monotonic()});
  return absl::OkStatus();
}

void OperationRecords::ForgetRequests(StoreTransaction& transaction) {
  while (!requests_.empty() &&
         clock_.Monotonic() - requests_.front().since >= options_.request_ids_for) {
    transaction.writes.push_back({RequestKey(requests_.front().request_id), std::nullopt});
    requests_.pop_front();
  }
}

absl::Status OperationRecords::Finish(absl::string_view id, std::string bytes) {
  ASSIGN_OR_RETURN(const StoredObject present, store_.Get(OperationKey(id)));
  StoreTransaction finish{.epoch = epoch_,
                          .requirements = {{present.key, present.revision}},
                          .writes = {{present.key, std::move(bytes)}}};
  const MutexLock lock(mutex_);
  const bool full = static_cast<int64_t>(finished_.size()) >= options_.finished_max;
  if (full) finish.writes.push_back({OperationKey(finished_.front()), std::nullopt});
  RETURN_IF_ERROR(store_.Commit(finish).status());
  if (full) finished_.pop_front();
  finished_.push_back(std::string(id));
  return absl::OkStatus();
}

absl::StatusOr<std::string> OperationRecords::Get(absl::string_view id) const {
  absl::StatusOr<StoredObject> object = store_.Get(OperationKey(id));
  if (!object.ok()) return absl::NotFoundError(absl::StrCat("unknown operation ", id));
  return std::move(object->value);
}

std::vector<std::pair<std::string, std::string>> OperationRecords::List(absl::string_view before,
                                                                        int64_t limit) const {
  // A few thousand at most: the bound on finished operations keeps this short.
  const absl::StatusOr<std::vector<StoredObject>> all =
      store_.List(kOperationPrefix, "", options_.finished_max * 64);
  std::vector<std::pair<std::string, std::string>> listed;
  if (!all.ok()) return listed;
  for (auto object = all->rbegin(); object != all->rend(); ++object) {
    if (static_cast<int64_t>(listed.size()) == limit) break;
    std::string id = object->key.substr(kOperationPrefix.size());
    if (!before.empty() && id >= before) continue;
    listed.emplace_back(std::move(id), object->value);
  }
  return listed;
}

}  // namespace crossmesh
