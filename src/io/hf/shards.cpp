#include "lamina/io/hf/shards.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lamina/base/files.h"
#include "lamina/base/json.h"

namespace lamina::io::hf {
namespace {

constexpr const char* kWhole = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

/// Reads model.safetensors.index.json: the map from tensor name to file name.
std::map<std::string, std::string> read_index(const std::string& path) {
  const auto json = read_json_file<nlohmann::json>(path);
  LAMINA_CHECK(json.is_object() && json.contains("weight_map") && json["weight_map"].is_object(), path,
               ": is not an index of shards: expected an object with a weight_map");
  std::map<std::string, std::string> map;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    LAMINA_CHECK(file.is_string(), path, ": weight_map: ", tensor.substr(0, 100), ": expected the name of a file");
    const auto name = file.get<std::string>();
    LAMINA_CHECK(!name.empty() && name.find('/') == std::string::npos && name != "..", path,
                 ": weight_map: ", tensor.substr(0, 100), ": '", name.substr(0, 100),
                 "' is not the name of a file in this folder");
    map[tensor] = name;
  }
  LAMINA_CHECK(!map.empty(), path, ": names no tensors");
  return map;
}

}  // namespace

void Shards::open(const std::string& file, const Device& device) {
  files_.push_back(SafetensorsFile::open(folder_ + "/" + file, device));
  for (const std::string& name : files_.back().names()) {
    LAMINA_CHECK(where_.emplace(name, files_.size() - 1).second, folder_, ": tensor '", name,
                 "' is in two files; keep one");
  }
}

Shards::Shards(const std::string& folder, const Device& device) : folder_(folder) {
  namespace fs = std::filesystem;
  const std::string index = folder + "/" + kIndex;
  if (path_exists(folder + "/" + kWhole)) {
    open(kWhole, device);
    return;
  }
  LAMINA_CHECK(path_exists(index), folder, ": has neither ", kWhole, " nor ", kIndex,
               "; give a folder with weights in the safetensors format",
               path_exists(folder + "/pytorch_model.bin") ? " (pytorch_model.bin is not read: it may run code)" : "");
  const std::map<std::string, std::string> map = read_index(index);
  std::set<std::string> opened;
  for (const auto& [tensor, file] : map) {
    LAMINA_CHECK(path_exists(str(folder, "/", file)), index, ": names the file '", file,
                 "', which does not exist; fetch it too");
    if (opened.insert(file).second) open(file, device);
  }
  for (const auto& [tensor, file] : map) {
    LAMINA_CHECK(where_.count(tensor) > 0, index, ": names the tensor '", tensor, "' in '", file,
                 "', but that file does not have it; the files are of different models");
  }
}

std::string Shards::find(const std::string& name) const {
  if (where_.count(name) > 0) return name;
  const size_t dot = name.find('.');
  const std::string inner = dot == std::string::npos ? "" : name.substr(dot + 1);
  return where_.count(inner) > 0 ? inner : "";
}

Tensor Shards::take(const std::string& stored_name) {
  used_.insert(stored_name);
  return file(stored_name).tensor(stored_name);
}

std::vector<std::string> Shards::unused() const {
  std::vector<std::string> names;
  for (const auto& [name, index] : where_) {
    if (used_.count(name) == 0) names.push_back(name);
  }
  return names;
}

}  // namespace lamina::io::hf
