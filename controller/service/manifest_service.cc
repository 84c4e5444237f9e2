#include "controller/service/manifest_service.h"

#include "common/base/status_macros.h"
#include "common/metrics/controller_metrics.h"
#include "common/rpc/server_streams.h"
#include "common/wire/object_name.h"
#include "common/wire/tensor_codec.h"
#include "controller/catalog/catalog.h"
#include "controller/service/paging.h"
#include "controller/service/reshard_planner.h"
#include "controller/service/unary.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Collects a manifest. Of a client that dies halfway the library tells nothing in time, and the
// tensors that came are a manifest of their own: so the first message says how many there are.
class ManifestUpload final : public ServerReadStream<grpc::ByteBuffer, v1::PutManifestResponse> {
 public:
  ManifestUpload(RequestBudget& budget, Catalog& catalog, ControllerMetrics& metrics)
      : budget_(budget), catalog_(catalog), metrics_(metrics) {}

 private:
  // What is collected takes the shares of all messages, as long as the call goes on.
  absl::Status OnMessage(grpc::ByteBuffer bytes) override {
    v1::PutManifestRequest request;
    ASSIGN_OR_RETURN(shares_.emplace_back(), ReadWithin(budget_, bytes, request));
    return Collect(request);
  }

  absl::Status Collect(const v1::PutManifestRequest& request) {
    if (!begun_) {
      RETURN_IF_ERROR(CheckObjectName("manifest", request.name()));
      name_ = request.name();
      tensor_count_ = request.tensor_count();
      begun_ = true;
      if (tensor_count_ > Manifest::kTensorsMax) {
        return Bad(absl::StrCat("expected at most ", static_cast<int64_t>(Manifest::kTensorsMax),
                                " tensors, found ", tensor_count_));
      }
    } else if (!request.name().empty()) {
      return Bad(absl::StrCat("expected a name in the first message only, found \"", request.name(),
                              "\" in a later one"));
    }
    if (request.tensors_size() > ManifestService::kTensorsPerMessageMax) {
      return Bad(absl::StrCat("expected at most ",
                              static_cast<int>(ManifestService::kTensorsPerMessageMax),
                              " tensors in a message, found ", request.tensors_size()));
    }
    if (std::ssize(tensors_) + request.tensors_size() > tensor_count_) {
      return Bad(absl::StrCat("expected ", tensor_count_,
                              " tensors, as the first message says, found more"));
    }
    for (const v1::TensorSpec& tensor : request.tensors()) {
      absl::StatusOr<TensorSpec> decoded = FromProto(tensor);
      if (!decoded.ok()) return Bad(decoded.status().message());
      tensors_.push_back(*std::move(decoded));
    }
    return absl::OkStatus();
  }

  absl::Status OnMessagesEnd(v1::PutManifestResponse& response) override {
    if (!begun_) return absl::InvalidArgumentError("expected a first message with a name");
    if (static_cast<int64_t>(tensors_.size()) != tensor_count_) {
      return Bad(absl::StrCat("expected ", tensor_count_,
                              " tensors, as the first message says, found ", tensors_.size()));
    }
    absl::StatusOr<Manifest> manifest = Manifest::Create(std::move(tensors_));
    if (!manifest.ok()) return Bad(manifest.status().message());
    response.set_tensors(static_cast<int64_t>(manifest->tensors().size()));
    response.set_size_bytes(manifest->bytes());
    response.set_digest(manifest->digest().ToString());
    ASSIGN_OR_RETURN(const int64_t revision, catalog_.manifests.Put(name_, *std::move(manifest)));
    response.set_revision(revision);
    metrics_.SetObjects(ObjectKind::kManifest, catalog_.manifests.size());
    return absl::OkStatus();
  }

  absl::Status Bad(absl::string_view why) const {
    return absl::InvalidArgumentError(absl::StrCat("manifest ", name_, ": ", why));
  }

  RequestBudget& budget_;
  Catalog& catalog_;
  ControllerMetrics& metrics_;
  std::vector<std::shared_ptr<void>> shares_;  // of the budget
  bool begun_ = false;
  std::string name_;
  int64_t tensor_count_ = 0;
  std::vector<TensorSpec> tensors_;
};

// Sends a manifest, in messages small enough for every reader.
class ManifestDownload final : public ServerWriteStream<v1::GetManifestResponse> {
 public:
  void SendAll(const Manifest& manifest) {
    constexpr size_t kPerMessage = ManifestService::kTensorsPerMessageMax;
    const std::vector<TensorSpec>& tensors = manifest.tensors();
    for (size_t begin = 0; begin < tensors.size(); begin += kPerMessage) {
      v1::GetManifestResponse response;
      for (size_t i = begin; i < std::min(tensors.size(), begin + kPerMessage); ++i) {
        *response.add_tensors() = ToProto(tensors[i]);
      }
      if (!Send(std::move(response))) return;
    }
    End(absl::OkStatus());
  }

 private:
  void OnEnd() override {}
};

}  // namespace

ManifestService::ManifestService(RequestBudget& budget, Catalog& catalog, ReshardPlanner& planner,
                                 ControllerMetrics& metrics)
    : BulkService(budget), catalog_(catalog), planner_(planner), metrics_(metrics) {
  ServeClientStream<v1::PutManifestResponse>(
      "PutManifest", [this](auto* /*context*/, v1::PutManifestResponse* response) {
        return ManifestUpload::Serve(
            std::make_unique<ManifestUpload>(this->budget(), catalog_, metrics_), response);
      });
}

grpc::ServerWriteReactor<v1::GetManifestResponse>* ManifestService::GetManifest(
    grpc::CallbackServerContext* /*context*/, const v1::GetManifestRequest* request) {
  auto download = std::make_shared<ManifestDownload>();
  const absl::StatusOr<Registered<Manifest>> manifest = catalog_.manifests.Get(request->name());
  if (manifest.ok()) {
    download->SendAll(*manifest->value);
  } else {
    download->End(manifest.status());
  }
  return ManifestDownload::Serve(std::move(download));
}

grpc::ServerUnaryReactor* ManifestService::ListManifests(grpc::CallbackServerContext* context,
                                                         const v1::ListManifestsRequest* request,
                                                         v1::ListManifestsResponse* response) {
  return Serve(context, *request, [&] {
    return ListObjects(catalog_.manifests, *request, *response,
                       [&](const Registered<Manifest>& manifest) {
                         v1::ListManifestsResponse::Entry& entry = *response->add_manifests();
                         entry.set_name(manifest.name);
                         entry.set_tensors(std::ssize(manifest.value->tensors()));
                         entry.set_size_bytes(manifest.value->bytes());
                         entry.set_digest(manifest.value->digest().ToString());
                         entry.set_revision(manifest.revision);
                       });
  });
}

grpc::ServerUnaryReactor* ManifestService::DeleteManifest(
    grpc::CallbackServerContext* context, const v1::DeleteManifestRequest* request,
    v1::DeleteManifestResponse* /*response*/) {
  return Serve(context, *request, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const int64_t deleted,
                     catalog_.manifests.Delete(request->name(), request->revision()));
    planner_.Forget(deleted);
    metrics_.SetObjects(ObjectKind::kManifest, catalog_.manifests.size());
    return absl::OkStatus();
  });
}

}  // namespace crossmesh
