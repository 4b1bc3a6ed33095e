#include "lamina/search/manifest.h"

#include <nlohmann/json.hpp>

#include "lamina/base/crc32c.h"
#include "lamina/base/json.h"

namespace lamina::search {
namespace {

using Json = nlohmann::ordered_json;

/// Reads the keys of an object. Every error names the file and the key.
class ObjectReader {
 public:
  ObjectReader(const Json& json, std::string name) : json_(json), name_(std::move(name)) {
    LAMINA_CHECK(json.is_object(), name_, ": expected an object; build the index again");
  }
  const Json& get(const char* key) const {
    const auto found = json_.find(key);
    LAMINA_CHECK(found != json_.end(), name_, ": has no \"", key, "\"; build the index again");
    return *found;
  }
  int64_t number(const char* key, int64_t low, int64_t high) const {
    const Json& value = get(key);
    const int64_t number = value.is_number_integer() ? value.get<int64_t>() : low - 1;
    LAMINA_CHECK(number >= low && number <= high, name_, ": \"", key, "\" is ", value.dump().substr(0, 40),
                 ", expected a whole number from ", low, " to ", high);
    return number;
  }
  std::string text(const char* key) const {
    const Json& value = get(key);
    LAMINA_CHECK(value.is_string(), name_, ": \"", key, "\" is ", value.type_name(), ", expected text");
    return value.get<std::string>();
  }
  bool flag(const char* key) const {
    const Json& value = get(key);
    LAMINA_CHECK(value.is_boolean(), name_, ": \"", key, "\" is ", value.type_name(), ", expected true or false");
    return value.get<bool>();
  }
  const std::string& name() const { return name_; }

 private:
  const Json& json_;
  std::string name_;
};

/// CRC-32C of the other keys, written without white space.
uint32_t checksum_of(Json json) {
  json.erase("checksum");
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return crc32c(text.data(), text.size());
}

VectorSettings parse_vectors(const ObjectReader& from) {
  VectorSettings vectors;
  vectors.model = from.text("model");
  vectors.dim = from.number("dim", 1, 65536);
  const auto dtype = dtype_from_name(from.text("dtype"));
  LAMINA_CHECK(dtype == DType::f32 || dtype == DType::f16 || dtype == DType::u8, from.name(), ": \"dtype\" is ",
               from.text("dtype"), ", expected f32, f16 or u8");
  vectors.dtype = *dtype;
  const auto metric = metric_from_name(from.text("metric"));
  LAMINA_CHECK(metric, from.name(), ": \"metric\" is ", from.text("metric"), ", expected cosine, inner_product or l2");
  vectors.metric = *metric;
  vectors.graph_from = from.number("graph_from", 0, int64_t{1} << 40U);
  vectors.graph.links = from.number("links", 2, 128);
  vectors.graph.beam = from.number("beam", vectors.graph.links, 65536);
  for (const Json& value : from.get("probe")) {
    LAMINA_CHECK(value.is_number() && vectors.probe.size() < kProbeValues, from.name(),
                 ": \"probe\" is wrong; expected at most ", kProbeValues, " numbers");
    vectors.probe.push_back(value.get<double>());
  }
  return vectors;
}

SegmentRecord parse_record(const ObjectReader& from) {
  SegmentRecord record{from.text("file"), {}};
  // A name that contains a folder could point outside the index.
  LAMINA_CHECK(record.file.starts_with("segment-") && record.file.find('/') == std::string::npos, from.name(),
               ": \"file\" is ", record.file, ", expected segment-N.lsx");
  const Json& deleted = from.get("deleted");
  int64_t last = 0;
  for (const Json& range : deleted) {
    const bool pair =
        range.is_array() && range.size() == 2 && range[0].is_number_integer() && range[1].is_number_integer();
    const int64_t begin = pair ? range[0].get<int64_t>() : -1;
    const int64_t end = pair ? range[1].get<int64_t>() : -1;
    LAMINA_CHECK(begin >= last && end > begin, from.name(), ": \"deleted\" has the range ", range.dump().substr(0, 40),
                 ", expected [begin, end) in ascending order");
    record.deleted.emplace_back(begin, end);
    last = end;
  }
  return record;
}

}  // namespace

std::string segment_file(int64_t number) { return str("segment-", number, ".lsx"); }

Manifest Manifest::parse(const std::string& text, const std::string& name) {
  const Json json = parse_json<Json>(text, name);
  const ObjectReader root(json, name);
  LAMINA_CHECK(root.text("format") == "lamina-index", name, ": is of format ", root.text("format"),
               ", expected lamina-index");
  (void)root.number("version", 1, 1);
  constexpr int64_t kNoChecksum = -1;  // of older indexes
  const int64_t checksum = json.contains("checksum") ? root.number("checksum", 0, UINT32_MAX) : kNoChecksum;
  LAMINA_CHECK(checksum == kNoChecksum || checksum == checksum_of(json), name,
               ": has another checksum than it says; it is damaged. Build the index again");
  LAMINA_CHECK(json.size() == (checksum == kNoChecksum ? 7 : 8), name, ": has an unknown key; build the index again");
  Manifest manifest;
  manifest.next = root.number("next", 1, int64_t{1} << 60U);
  manifest.settings.bm25 = root.flag("bm25");
  const ObjectReader chunks(root.get("chunks"), name);
  manifest.settings.chunks = {chunks.number("words", 1, 1 << 20), chunks.number("overlap", 0, 1 << 20)};
  LAMINA_CHECK(manifest.settings.chunks.overlap < manifest.settings.chunks.words, name,
               ": \"overlap\" is not less than \"words\"");
  if (!root.get("vectors").is_null()) manifest.settings.vectors = parse_vectors({root.get("vectors"), name});
  LAMINA_CHECK(root.get("segments").is_array(), name, ": \"segments\" is not a list; build the index again");
  for (const Json& record : root.get("segments")) manifest.segments.push_back(parse_record({record, name}));
  return manifest;
}

Manifest Manifest::read(const std::string& folder) {
  const std::string path = folder + "/" + kManifestFile;
  LAMINA_CHECK(file_exists(path), folder, ": is not an index: ", kManifestFile,
               " is missing; build one with `lamina index build TEXTS --out ", folder, "`");
  return parse(read_text(path), path);
}

std::string Manifest::to_text() const {
  Json json{{"format", "lamina-index"},
            {"version", 1},
            {"next", next},
            {"chunks", {{"words", settings.chunks.words}, {"overlap", settings.chunks.overlap}}},
            {"bm25", settings.bm25},
            {"vectors", nullptr},
            {"segments", Json::array()}};
  if (settings.vectors) {
    const VectorSettings& vectors = *settings.vectors;
    json["vectors"] = {{"model", vectors.model},
                       {"dim", vectors.dim},
                       {"dtype", std::string(lamina::name_of(vectors.dtype))},
                       {"metric", std::string(name_of(vectors.metric))},
                       {"graph_from", vectors.graph_from},
                       {"links", vectors.graph.links},
                       {"beam", vectors.graph.beam},
                       {"probe", vectors.probe}};
  }
  for (const SegmentRecord& segment : segments) {
    Json deleted = Json::array();
    for (const auto& [begin, end] : segment.deleted) deleted.push_back({begin, end});
    json["segments"].push_back({{"file", segment.file}, {"deleted", deleted}});
  }
  json["checksum"] = checksum_of(json);
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lamina::search
