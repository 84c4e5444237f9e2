#include "common/plan/delivery_ledger.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

namespace crossmesh {

DeliveryLedger::DeliveryLedger(const TensorTable& tensors, const Slicing& slicing,
                               std::optional<std::span<const DeviceRank>> devices)
    : tensors_(tensors),
      slicing_(slicing),
      in_scope_(tensors.devices().size(), !devices.has_value()),
      accounts_(tensors.devices().size()) {
  if (!devices.has_value()) return;
  for (const DeviceRank device : *devices) in_scope_[device] = true;
}

void DeliveryLedger::Open(ClassIndex slice_class) {
  class_ = slice_class;
  const std::span<const DeviceRank> holders = slicing_.holders(slice_class);
  for (const DeviceRank receiver : slicing_.receivers(slice_class)) {
    const bool holds = std::ranges::binary_search(holders, receiver);
    accounts_[receiver] = {.slice_class = slice_class, .way = holds ? Way::kCopy : Way::kRelay};
  }
}

absl::Status DeliveryLedger::Copy(DeviceRank device) {
  Account& account = accounts_[device];
  if (account.slice_class != class_ || account.way != Way::kCopy) {
    return Error(device, "a copy only where a device both holds and needs the class", "one");
  }
  if (account.received != 0) return Error(device, "one copy", "two");
  account.received = slicing_.classes()[class_].bytes;
  return absl::OkStatus();
}

absl::Status DeliveryLedger::Deliver(int64_t relay, DeviceRank device, Interval bytes) {
  Account& account = accounts_[device];
  const auto found = [&] {
    return absl::StrCat("bytes [", bytes.begin, ", ", bytes.end, ") of relay ", relay);
  };
  if (account.slice_class != class_) return Error(device, "nothing, it does not need it", found());
  if (account.way != Way::kRelay) return Error(device, "nothing, it holds it", found());
  if (!in_scope_[device]) return absl::OkStatus();
  if (bytes.begin < account.received) {
    return Error(
        device,
        absl::StrCat("every byte once, those before ", account.received, " are there already"),
        found());
  }
  if (bytes.begin > account.received) {
    return Error(device, absl::StrCat("bytes from ", account.received, " on"), found());
  }
  account.received = bytes.end;
  return absl::OkStatus();
}

absl::Status DeliveryLedger::Close() {
  const int64_t bytes = slicing_.classes()[class_].bytes;
  for (const DeviceRank receiver : slicing_.receivers(class_)) {
    if (!in_scope_[receiver] || accounts_[receiver].received == bytes) continue;
    if (accounts_[receiver].way == Way::kCopy) return Error(receiver, "a copy", "none");
    return Error(receiver, absl::StrCat("all ", bytes, " bytes"),
                 absl::StrCat("nothing from byte ", accounts_[receiver].received, " on"));
  }
  return absl::OkStatus();
}

absl::Status DeliveryLedger::Error(DeviceRank device, absl::string_view expected,
                                   absl::string_view found) const {
  return absl::InternalError(absl::StrCat("class ", class_, ", device ",
                                          ToString(tensors_.devices()[device]), ": expected ",
                                          expected, ", found ", found));
}

}  // namespace crossmesh
