#include "lamina/io/manifest.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/base/json.h"

namespace lamina::io {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kVersion = 1;
constexpr int64_t kLargestTensor = int64_t{1} << 56;  // in elements; the bytes of a tensor then fit int64

/// Reads values of the manifest. Messages name the file and the position in it.
class ManifestReader {
 public:
  explicit ManifestReader(const std::string& path) : path_(path) {}

  template <class... Args>
  [[noreturn]] void fail(const Args&... args) const {
    throw Error(str(path_, ": ", args..., "; the manifest is damaged or not of this program, use another checkpoint"));
  }

  const Json& member(const Json& object, const char* key, const std::string& place) const {
    if (!object.is_object() || !object.contains(key)) fail(place, " has no '", key, "'");
    return object[key];
  }

  int64_t count(const Json& value, const std::string& place) const {
    const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{1} << 62;
    if (!fits) fail(place, " is ", value.dump().substr(0, 40), ", expected a number >= 0");
    return static_cast<int64_t>(value.get<uint64_t>());
  }

  std::string text(const Json& value, const std::string& place) const {
    if (!value.is_string()) fail(place, " is not a string");
    return value.get<std::string>();
  }

  WholeTensor tensor(const Json& value, const std::string& place) const {
    WholeTensor whole;
    const std::string name = text(member(value, "dtype", place), place + ".dtype");
    const std::optional<DType> dtype = dtype_from_name(name);
    if (!dtype) fail(place, ".dtype is '", shown(name), "', expected f32, bf16, f16, f64, i64, i32 or u8");
    whole.dtype = *dtype;
    const Json& shape = member(value, "shape", place);
    if (!shape.is_array() || shape.size() > static_cast<size_t>(Shape::kMaxRank)) {
      fail(place, ".shape is not a list of at most ", Shape::kMaxRank, " extents");
    }
    int64_t elements = 1;
    for (const Json& extent : shape) {
      whole.shape.push_back(count(extent, place + ".shape"));
      const int64_t factor = std::max<int64_t>(whole.shape[-1], 1);
      if (factor > kLargestTensor / elements) fail(place, " has more than 2^56 elements");
      elements *= factor;
    }
    return whole;
  }

  ShardFile file(const Json& value, const std::string& place) const {
    ShardFile file;
    file.name = text(member(value, "name", place), place + ".name");
    const bool inside = file.name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos &&
                        !file.name.starts_with(".") && file.name.ends_with(".safetensors");
    if (!inside) fail(place, ".name is '", shown(file.name), "', expected a .safetensors file in this folder");
    file.bytes = static_cast<uint64_t>(count(member(value, "bytes", place), place + ".bytes"));
    const std::string sum = text(member(value, "crc32c", place), place + ".crc32c");
    const auto [end, error] = std::from_chars(sum.data(), sum.data() + sum.size(), file.crc32c, 16);
    if (sum.size() != 8 || error != std::errc() || end != sum.data() + sum.size()) {
      fail(place, ".crc32c is '", shown(sum), "', expected eight hexadecimal digits");
    }
    return file;
  }

  static std::string shown(const std::string& text) {
    std::string result;
    for (const char c : text.substr(0, 100)) result += c >= ' ' && c <= '~' ? c : '?';
    return result;
  }

 private:
  const std::string& path_;
};

}  // namespace

const ShardGroup& Manifest::group(const std::string& name, const std::string& path) const {
  const auto found = groups.find(name);
  LAMINA_CHECK(found != groups.end(), path, ": has no group '", name,
               "'; a checkpoint to resume from has both model and training, one to generate with has model");
  return found->second;
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  const ManifestReader read(path);
  const Json json = parse_json<Json>(text, path);
  const std::string format = read.text(read.member(json, "format", "it"), "format");
  if (format != kShardedFormat) read.fail("format is '", ManifestReader::shown(format), "', expected ", kShardedFormat);
  const int64_t version = read.count(read.member(json, "version", "it"), "version");
  LAMINA_CHECK(version == kVersion, path, ": is version ", version, ", this program reads version ", kVersion,
               "; use the program that wrote it");
  Manifest manifest;
  manifest.step = read.count(read.member(json, "step", "it"), "step");
  const Json& layout = read.member(json, "layout", "it");
  if (!layout.is_object()) read.fail("layout is not an object");
  for (const auto& [key, value] : layout.items()) manifest.layout[key] = read.count(value, "layout." + key);
  const Json& groups = read.member(json, "groups", "it");
  if (!groups.is_object() || groups.empty()) read.fail("groups is not an object with members");
  std::set<std::string> names;
  for (const auto& [group_name, value] : groups.items()) {
    const std::string place = "groups." + ManifestReader::shown(group_name);
    ShardGroup& group = manifest.groups[group_name];
    const Json& tensors = read.member(value, "tensors", place);
    if (!tensors.is_object()) read.fail(place, ".tensors is not an object");
    for (const auto& [name, tensor] : tensors.items()) {
      group.tensors.emplace(name, read.tensor(tensor, place + ".tensors." + ManifestReader::shown(name)));
    }
    const Json& files = read.member(value, "files", place);
    if (!files.is_array()) read.fail(place, ".files is not a list");
    for (size_t i = 0; i < files.size(); ++i) {
      group.files.push_back(read.file(files[i], str(place, ".files[", i, "]")));
      if (!names.insert(group.files.back().name).second) {
        read.fail(place, ".files names ", group.files.back().name, " twice");
      }
    }
  }
  return manifest;
}

std::string manifest_text(const Manifest& manifest) {
  Json json{{"format", kShardedFormat}, {"version", kVersion}, {"step", manifest.step}};
  json["layout"] = manifest.layout;
  Json& groups = json["groups"] = Json::object();
  for (const auto& [group_name, group] : manifest.groups) {
    Json& files = groups[group_name]["files"] = Json::array();
    for (const ShardFile& file : group.files) {
      char sum[9];
      std::snprintf(sum, sizeof sum, "%08x", file.crc32c);
      files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"crc32c", sum}});
    }
    Json& tensors = groups[group_name]["tensors"] = Json::object();
    for (const auto& [name, whole] : group.tensors) {
      tensors[name] = {{"dtype", name_of(whole.dtype)},
                       {"shape", std::vector<int64_t>(whole.shape.begin(), whole.shape.end())}};
    }
  }
  return json.dump(1) + "\n";
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/" + kManifest;
  return parse_manifest(read_text(path), path);
}

bool is_sharded(const std::string& folder) { return path_exists(folder + "/" + kManifest); }

}  // namespace lamina::io
