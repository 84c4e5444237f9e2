#pragma once

#include "controller/store/metadata_store.h"

#include <functional>
#include <memory>

#include <absl/status/status.h>

namespace crossmesh {

// A store, and word of a commit that fails as all later ones will: DataLoss, since it is damaged,
// or FailedPrecondition, since it is another one or was set back. Who has it should end.
// `on_unusable` is called with the error, perhaps more than once, before the commit is done.
// Thread-safe.
std::shared_ptr<MetadataStore> MakeMonitoredStore(
    std::shared_ptr<MetadataStore> store, std::function<void(const absl::Status&)> on_unusable);

}  // namespace crossmesh
