#include "controller/catalog/request_table.h"

#include "common/base/check.h"

namespace crossmesh {

const RequestTable::Request* RequestTable::Find(const Digest& id) const {
  const auto found = index_.find(id);
  return found == index_.end() ? nullptr : &At(*found);
}

void RequestTable::Add(const Request& request) {
  CHECK(size() == 0 || At(next_ - 1).since <= request.since);
  CHECK(Find(request.id) == nullptr) << "request " << request.id << " is in the table";
  if (next_ % kBlock == 0) blocks_.emplace_back().reserve(kBlock);
  blocks_.back().push_back(request);
  index_.insert(next_++);
}

void RequestTable::ForgetOldest() {
  CHECK(size() > 0);
  index_.erase(first_);
  if (++first_ % kBlock == 0) blocks_.pop_front();
}

}  // namespace crossmesh
