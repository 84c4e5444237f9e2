#include "common/rpc/service_names.h"

#include <memory>

#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/impl/server_builder_plugin.h>
#include <grpcpp/impl/server_initializer.h>

namespace crossmesh {
namespace {

// A service does not tell its name, but plugins see those of all that are registered: reflection
// has them from there.
class Collector final : public grpc::ServerBuilderPlugin {
 public:
  explicit Collector(std::vector<std::string>& names) : names_(names) {}

  std::string name() override { return "crossmesh.service_names"; }
  void InitServer(grpc::ServerInitializer* /*server*/) override {}
  void Finish(grpc::ServerInitializer* server) override { names_ = *server->GetServiceList(); }
  void ChangeArguments(const std::string& /*name*/, void* /*value*/) override {}

 private:
  std::vector<std::string>& names_;
};

class AddCollector final : public grpc::ServerBuilderOption {
 public:
  explicit AddCollector(std::vector<std::string>& names) : names_(names) {}

  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    plugins->push_back(std::make_unique<Collector>(names_));
  }

 private:
  std::vector<std::string>& names_;
};

}  // namespace

void CollectServiceNames(std::vector<std::string>& names, grpc::ServerBuilder& builder) {
  builder.SetOption(std::make_unique<AddCollector>(names));
}

}  // namespace crossmesh
