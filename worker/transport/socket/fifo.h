#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace crossmesh {

// A queue that, unlike std::deque, keeps its memory: nothing is allocated once it has been as long
// as it gets. Thread-compatible.
template <typename T>
class Fifo {
 public:
  bool empty() const { return first_ == items_.size(); }
  size_t size() const { return items_.size() - first_; }
  T& front() { return items_[first_]; }
  T& operator[](size_t index) { return items_[first_ + index]; }

  void Push(T item) { items_.push_back(std::move(item)); }
  T Pop() {
    T item = std::move(items_[first_++]);
    // Amortised: what is moved is no more than what has gone before.
    if (2 * first_ >= items_.size()) {
      items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
      first_ = 0;
    }
    return item;
  }
  void Clear() {
    items_.clear();
    first_ = 0;
  }

 private:
  std::vector<T> items_;
  size_t first_ = 0;
};

}  // namespace crossmesh
