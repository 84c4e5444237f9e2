#include "common/plan/delivery_ledger.h"

#include "common/base/check.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

auto IsInternal(const std::string& message) {
  return StatusIs(absl::StatusCode::kInternal, ::testing::Eq(message));
}

// A tensor of bytes with its slicing.
struct Sliced {
  explicit Sliced(const std::string& tensor)
      : tensors(TableOf({TensorOf(tensor, DataType::kU8)})), slicing(SlicingOf(tensors)) {}

  static Slicing SlicingOf(const TensorTable& table) {
    absl::StatusOr<Slicing> made = Slicing::Create(table);
    CHECK_OK(made);
    return *std::move(made);
  }

  const TensorTable tensors;
  const Slicing slicing;
};

// One class of 8 bytes. Ranks: a.0 0, which copies it, b.0 1, b.1 2.
Sliced OneClass() { return Sliced("[8]: x=1 on a.0 [-] -> x=3 on a.0,b.0-1 [-]"); }

TEST(DeliveryLedgerTest, BytesComeOnceAndWithoutAGap) {
  const Sliced table = OneClass();
  DeliveryLedger ledger(table.tensors, table.slicing);
  ledger.Open(0);
  EXPECT_OK(ledger.Copy(0));
  EXPECT_OK(ledger.Deliver(5, 1, {0, 4}));
  EXPECT_THAT(ledger.Deliver(6, 1, {3, 8}),
              IsInternal("class 0, device b.0: expected every byte once, those before 4 are there "
                         "already, found bytes [3, 8) of relay 6"));
  EXPECT_THAT(ledger.Deliver(6, 1, {5, 8}),
              IsInternal("class 0, device b.0: expected bytes from 4 on, found bytes [5, 8) of "
                         "relay 6"));
  EXPECT_THAT(ledger.Close(), IsInternal("class 0, device b.0: expected all 8 bytes, found nothing "
                                         "from byte 4 on"));
  EXPECT_OK(ledger.Deliver(6, 1, {4, 8}));
  EXPECT_OK(ledger.Deliver(5, 2, {0, 8}));
  EXPECT_OK(ledger.Close());
}

TEST(DeliveryLedgerTest, ADeviceThatHoldsTheClassCopiesItAndGetsNothing) {
  const Sliced table = OneClass();
  DeliveryLedger ledger(table.tensors, table.slicing);
  ledger.Open(0);
  EXPECT_THAT(
      ledger.Deliver(2, 0, {0, 8}),
      IsInternal(
          "class 0, device a.0: expected nothing, it holds it, found bytes [0, 8) of relay 2"));
  EXPECT_THAT(ledger.Close(), IsInternal("class 0, device a.0: expected a copy, found none"));
  EXPECT_OK(ledger.Copy(0));
  EXPECT_THAT(ledger.Copy(0), IsInternal("class 0, device a.0: expected one copy, found two"));
}

TEST(DeliveryLedgerTest, WhatHeldForTheClassBeforeNoLongerDoes) {
  // a.0 copies class 0, c.0 gets class 1, b.0 class 2.
  const Sliced table("[9]: x=1 on a.0 [-] -> x=3 on a.0,c.0,b.0 [x]");
  DeliveryLedger ledger(table.tensors, table.slicing);
  ledger.Open(0);
  EXPECT_OK(ledger.Copy(0));
  EXPECT_OK(ledger.Close());
  ledger.Open(1);
  const std::string needless =
      ": expected a copy only where a device both holds and needs the class, found one";
  EXPECT_THAT(ledger.Copy(0), IsInternal("class 1, device a.0" + needless));
  EXPECT_THAT(ledger.Copy(2), IsInternal("class 1, device c.0" + needless));
  EXPECT_OK(ledger.Deliver(0, 2, {0, 3}));
  EXPECT_OK(ledger.Close());
  ledger.Open(2);
  EXPECT_THAT(ledger.Deliver(1, 2, {3, 6}),
              IsInternal("class 2, device c.0: expected nothing, it does not need it, found bytes "
                         "[3, 6) of relay 1"));
}

TEST(DeliveryLedgerTest, OnlyWhatDevicesInScopeMissIsCounted) {
  const Sliced table = OneClass();
  const std::vector<DeviceRank> scope = {1};
  DeliveryLedger ledger(table.tensors, table.slicing, scope);
  ledger.Open(0);
  // Another worker proves what it is that b.1 has before.
  EXPECT_OK(ledger.Deliver(0, 2, {4, 6}));
  EXPECT_THAT(ledger.Close(), IsInternal("class 0, device b.0: expected all 8 bytes, found nothing "
                                         "from byte 0 on"));
  EXPECT_OK(ledger.Deliver(0, 1, {0, 8}));
  EXPECT_OK(ledger.Close());
}

}  // namespace
}  // namespace crossmesh
