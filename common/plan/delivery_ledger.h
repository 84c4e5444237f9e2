#pragma once

#include "common/plan/slicing.h"
#include "common/plan/tensor_table.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Keeps account of what the devices that need a class get of it: class by class, and within a class
// by ascending ranges. Finds what is missing, what comes twice, and what comes to a device that
// does not need it; all errors are Internal. Thread-compatible.
class DeliveryLedger {
 public:
  // Counts what `devices` miss, or all of them without a list; that no device gets what it does not
  // need is checked for all.
  DeliveryLedger(const TensorTable& tensors, const Slicing& slicing,
                 std::optional<std::span<const DeviceRank>> devices = std::nullopt);

  // Each class once, from Open to Close. Cost: linear in its receivers.
  void Open(ClassIndex slice_class);
  // The device copies the class from itself.
  absl::Status Copy(DeviceRank device);
  // A hop of a relay brings the bytes [begin, end) to a device; of all hops to a device in one
  // class, `begin` must not descend. `relay` is for messages.
  absl::Status Deliver(int64_t relay, DeviceRank device, Interval bytes);
  absl::Status Close();

 private:
  enum class Way : uint8_t { kNone, kRelay, kCopy };
  struct Account {
    ClassIndex slice_class = kNoClass;  // for which the others hold
    Way way = Way::kNone;
    int64_t received = 0;  // bytes from the first one on
  };

  absl::Status Error(DeviceRank device, absl::string_view expected, absl::string_view found) const;

  const TensorTable& tensors_;
  const Slicing& slicing_;
  std::vector<bool> in_scope_;     // [device]
  std::vector<Account> accounts_;  // [device]
  ClassIndex class_ = kNoClass;
};

}  // namespace crossmesh
