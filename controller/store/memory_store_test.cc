#include "controller/store/memory_store.h"

#include "controller/store/testing/store_conformance.h"

#include <memory>

namespace crossmesh {
namespace {

INSTANTIATE_TEST_SUITE_P(Memory, StoreConformance, testing::Values(StoreFactory([] {
                           return std::make_unique<MemoryStore>();
                         })));

}  // namespace
}  // namespace crossmesh
