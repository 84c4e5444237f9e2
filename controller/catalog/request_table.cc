#include "controller/catalog/request_table.h"

#include "common/base/check.h"

namespace crossmesh {

const RequestTable::Request* RequestTable::Find(const Digest& id) const {
  const auto found = index_.find(id);
  return found == index_.end() ? nullptr : &At(*found);
}

void RequestTable::Add(const Request& request) {
  CHECK(requests_.empty() || requests_.back().since <= request.since);
  CHECK(Find(request.id) == nullptr) << "request " << request.id << " is in the table";
  requests_.push_back(request);
  index_.insert(first_ + requests_.size() - 1);
}

void RequestTable::ForgetOldest() {
  CHECK(!requests_.empty());
  index_.erase(first_);
  requests_.pop_front();
  ++first_;
}

}  // namespace crossmesh
