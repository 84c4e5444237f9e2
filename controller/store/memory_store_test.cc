#include "controller/store/memory_store.h"

#include "controller/store/testing/store_conformance.h"

#include <cstdint>
#include <memory>

namespace crossmesh {
namespace {

INSTANTIATE_TEST_SUITE_P(Memory, StoreConformance,
                         testing::Values(StoreFactory([](int64_t commits_kept) {
                           return std::make_unique<MemoryStore>(commits_kept);
                         })));

}  // namespace
}  // namespace crossmesh
