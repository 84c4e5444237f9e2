#include "controller/store/etcd/records/testing/etcd_model.h"

#include "common/base/check.h"

#include <algorithm>
#include <set>

namespace crossmesh {
namespace {

using etcdserverpb::Compare;
using etcdserverpb::Event;
using etcdserverpb::KeyValue;
using etcdserverpb::RequestOp;

constexpr size_t kRequestBytesMax = size_t{3} << 19;

template <typename Value>
bool Compares(const Compare& compare, const Value& found, const Value& expected) {
  switch (compare.result()) {
    case Compare::EQUAL:
      return found == expected;
    case Compare::GREATER:
      return found > expected;
    case Compare::LESS:
      return found < expected;
    case Compare::NOT_EQUAL:
      return found != expected;
    default:
      return false;
  }
}

}  // namespace

bool EtcdModel::Holds(const Compare& compare) const {
  const auto found = pairs_.find(compare.key());
  const KeyValue pair = found == pairs_.end() ? KeyValue() : found->second;
  switch (compare.target()) {
    case Compare::CREATE:
      return Compares(compare, pair.create_revision(), compare.create_revision());
    case Compare::MOD:
      return Compares(compare, pair.mod_revision(), compare.mod_revision());
    case Compare::VALUE:
      return found != pairs_.end() && Compares(compare, pair.value(), compare.value());
    default:
      CHECK(false) << "not modelled: " << compare.ShortDebugString();
  }
}

etcdserverpb::TxnResponse EtcdModel::Txn(const etcdserverpb::TxnRequest& request) {
  CHECK_LE(request.ByteSizeLong(), kRequestBytesMax);
  std::set<std::string> put;
  for (const RequestOp& operation : request.success()) {
    if (!operation.has_request_put()) continue;
    CHECK(put.insert(operation.request_put().key()).second) << operation.request_put().key();
  }
  etcdserverpb::TxnResponse response;
  response.set_succeeded(true);
  for (const Compare& compare : request.compare()) {
    response.set_succeeded(response.succeeded() && Holds(compare));
  }
  const size_t events = events_.size();
  ++revision_;
  for (const RequestOp& operation : response.succeeded() ? request.success() : request.failure()) {
    *response.add_responses() = Do(operation);
  }
  if (events_.size() == events) --revision_;
  response.mutable_header()->set_revision(revision_);
  return response;
}

void EtcdModel::Put(const std::string& key, const std::string& value) {
  etcdserverpb::TxnRequest request;
  request.add_success()->mutable_request_put()->set_key(key);
  request.mutable_success(0)->mutable_request_put()->set_value(value);
  Txn(request);
}

etcdserverpb::ResponseOp EtcdModel::Do(const RequestOp& operation) {
  etcdserverpb::ResponseOp response;
  if (operation.has_request_range()) {
    const auto found = pairs_.find(operation.request_range().key());
    etcdserverpb::RangeResponse& range = *response.mutable_response_range();
    if (found == pairs_.end()) return response;
    *range.add_kvs() = found->second;
    if (operation.request_range().keys_only()) range.mutable_kvs(0)->clear_value();
  } else if (operation.has_request_put()) {
    DoPut(operation.request_put());
    response.mutable_response_put();
  } else {
    DoDeletion(operation.request_delete_range());
    response.mutable_response_delete_range();
  }
  return response;
}

void EtcdModel::DoPut(const etcdserverpb::PutRequest& put) {
  KeyValue& pair = pairs_[put.key()];
  if (pair.version() == 0) pair.set_create_revision(revision_);
  pair.set_key(put.key());
  pair.set_value(put.value());
  pair.set_lease(put.lease());
  pair.set_mod_revision(revision_);
  pair.set_version(pair.version() + 1);
  Event event;
  *event.mutable_kv() = pair;
  events_.push_back(event);
}

void EtcdModel::DoDeletion(const etcdserverpb::DeleteRangeRequest& deletion) {
  auto at = pairs_.lower_bound(deletion.key());
  const auto is_meant = [&] {
    if (at == pairs_.end()) return false;
    return deletion.range_end().empty() ? at->first == deletion.key()
                                        : at->first < deletion.range_end();
  };
  while (is_meant()) {
    Event event;
    event.set_type(Event::DELETE);
    event.mutable_kv()->set_key(at->first);
    event.mutable_kv()->set_mod_revision(revision_);
    events_.push_back(event);
    at = pairs_.erase(at);
  }
}

std::vector<KeyValue> EtcdModel::Pairs() const {
  std::vector<KeyValue> pairs;
  for (const auto& [key, pair] : pairs_) pairs.push_back(pair);
  return pairs;
}

std::vector<Event> EtcdModel::EventsFrom(int64_t revision) const {
  const auto begin = std::ranges::lower_bound(
      events_, revision, {}, [](const Event& event) { return event.kv().mod_revision(); });
  return {begin, events_.end()};
}

}  // namespace crossmesh
