#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <google/protobuf/message_lite.h>

namespace crossmesh {

// Writes what fuzz targets start from, a file for each input in a folder for each target.
class CorpusWriter {
 public:
  explicit CorpusWriter(std::string folder) : folder_(std::move(folder)) {}

  std::string PathOf(const std::string& target, const std::string& name) const {
    const std::string folder = absl::StrCat(folder_, "/", target);
    std::filesystem::create_directories(folder);
    return absl::StrCat(folder, "/", name);
  }
  void Write(const std::string& target, const std::string& name, const std::string& bytes) const {
    std::ofstream(PathOf(target, name), std::ios::binary) << bytes;
  }
  void Write(const std::string& target, const std::string& name,
             const google::protobuf::MessageLite& message) const {
    Write(target, name, message.SerializeAsString());
  }

 private:
  const std::string folder_;
};

}  // namespace crossmesh
