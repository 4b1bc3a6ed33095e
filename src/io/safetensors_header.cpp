#include "lamina/io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

namespace lamina::io {
namespace {

constexpr std::array<std::pair<std::string_view, DType>, 8> kTypes{{{"F32", DType::f32},
                                                                    {"F64", DType::f64},
                                                                    {"BF16", DType::bf16},
                                                                    {"F16", DType::f16},
                                                                    {"I64", DType::i64},
                                                                    {"I32", DType::i32},
                                                                    {"U8", DType::u8},
                                                                    {"BOOL", DType::u8}}};

/// Quotes a name for messages. Names in a hostile file may be long or unprintable.
std::string shown(std::string_view text) {
  constexpr size_t kShown = 120;
  std::string result = "'";
  for (const char c : text.substr(0, kShown)) result += c >= ' ' && c <= '~' ? c : '?';
  return result + (text.size() > kShown ? "…'" : "'");
}

/// Parses the header as SAX events. So memory is bounded by the header's size, and nesting and duplicate names are
/// rejected at once.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(const std::string& path, SafetensorsHeader& header) : path_(path), header_(header) {}

  bool null() override { return unexpected("null"); }
  bool boolean(bool /*value*/) override { return unexpected("a boolean"); }
  bool number_integer(int64_t value) override {
    return fail("the negative number ", value, " where an extent or an offset belongs");
  }
  bool number_unsigned(uint64_t value) override {
    if (place_ == Place::shape) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) fail("an extent of ", value);
      if (entry_.shape.rank() == Shape::kMaxRank) fail("more than ", Shape::kMaxRank, " dimensions");
      entry_.shape.push_back(static_cast<int64_t>(value));
    } else if (place_ == Place::offsets) {
      if (offsets_ == 2) fail("more than two data_offsets");
      (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    } else {
      return unexpected("a number");
    }
    return true;
  }
  bool number_float(double /*value*/, const std::string& text) override {
    return unexpected("the number " + shown(text));
  }
  bool string(std::string& value) override {
    if (place_ == Place::metadata) {
      header_.metadata[field_] = value;
    } else if (place_ == Place::tensor && field_ == "dtype") {
      for (const auto& [name, dtype] : kTypes) {
        if (name == value) dtype_ = dtype;
      }
      if (!dtype_) fail("the unknown dtype ", shown(value), "; known are F64 F32 F16 BF16 I64 I32 U8 BOOL");
      entry_.dtype = *dtype_;
    } else {
      return unexpected("the string " + shown(value));
    }
    return true;
  }
  bool binary(nlohmann::json::binary_t& /*value*/) override { return unexpected("binary data"); }

  bool start_object(size_t /*count*/) override {
    if (place_ == Place::start) {
      place_ = Place::top;
    } else if (place_ == Place::top) {
      place_ = name_ == "__metadata__" ? Place::metadata : Place::tensor;
      entry_ = {};
      dtype_.reset();
      has_shape_ = has_offsets_ = false;
    } else {
      return unexpected("an object");
    }
    return true;
  }
  bool key(std::string& value) override {
    if (place_ == Place::top) {
      name_ = value;
      if (header_.entries.count(name_) > 0 || (name_ == "__metadata__" && has_metadata_)) fail("a name used twice");
      return true;
    }
    field_ = value;
    if (place_ == Place::tensor && field_ != "dtype" && field_ != "shape" && field_ != "data_offsets") {
      return fail("the unknown key ", shown(field_), "; expected dtype, shape and data_offsets");
    }
    const bool repeated = place_ == Place::metadata
                              ? header_.metadata.count(field_) > 0
                              : (field_ == "dtype" && dtype_) || (field_ == "shape" && has_shape_) ||
                                    (field_ == "data_offsets" && has_offsets_);
    if (repeated) fail("the key ", shown(field_), " twice");
    return true;
  }
  bool end_object() override {
    if (place_ == Place::tensor) {
      if (!dtype_ || !has_shape_ || !has_offsets_) {
        fail("no ", !dtype_ ? "dtype" : !has_shape_ ? "shape" : "data_offsets");
      }
      header_.entries.emplace(name_, entry_);
    }
    if (place_ == Place::metadata) has_metadata_ = true;
    place_ = place_ == Place::top ? Place::end : Place::top;
    return true;
  }
  bool start_array(size_t /*count*/) override {
    if (place_ != Place::tensor || field_ == "dtype") return unexpected("an array");
    place_ = field_ == "shape" ? Place::shape : Place::offsets;
    (place_ == Place::shape ? has_shape_ : has_offsets_) = true;
    offsets_ = 0;
    return true;
  }
  bool end_array() override {
    if (place_ == Place::offsets && offsets_ != 2) fail("fewer than two data_offsets");
    place_ = Place::tensor;
    return true;
  }
  bool parse_error(size_t position, const std::string& /*token*/, const nlohmann::json::exception& /*error*/) override {
    throw Error(str(path_, ": the header is not valid JSON near byte ", position,
                    "; the file is damaged or not a safetensors file, fetch it again"));
  }

 private:
  enum class Place { start, top, metadata, tensor, shape, offsets, end };

  template <class... Args>
  bool fail(const Args&... args) const {
    throw Error(str(path_, ": tensor ", shown(name_), " has ", args..., "; the file is damaged, fetch it again"));
  }
  bool unexpected(const std::string& what) const {
    LAMINA_CHECK(place_ != Place::start && place_ != Place::end, path_, ": the header is ", what,
                 "; expected a JSON object of tensors");
    return fail(what, " where the format has none");
  }

  const std::string& path_;
  SafetensorsHeader& header_;
  Place place_ = Place::start;
  std::string name_;
  std::string field_;
  SafetensorsFile::Entry entry_;
  std::optional<DType> dtype_;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  bool has_metadata_ = false;
  int offsets_ = 0;
};

/// Size of the elements in bytes. Empty if it exceeds 2^63.
std::optional<uint64_t> bytes_of(const SafetensorsFile::Entry& entry) {
  int64_t bytes = static_cast<int64_t>(size_of(entry.dtype));
  for (const int64_t extent : entry.shape) {
    if (extent == 0) return 0;
  }
  for (const int64_t extent : entry.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return static_cast<uint64_t>(bytes);
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes, const std::string& path) {
  SafetensorsHeader header;
  HeaderReader reader(path, header);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  for (const auto& [name, entry] : header.entries) {
    const auto bytes = bytes_of(entry);
    LAMINA_CHECK(entry.begin <= entry.end && entry.end <= data_bytes, path, ": tensor ", shown(name),
                 " claims the bytes [", entry.begin, ", ", entry.end, ") of ", data_bytes,
                 "; the file is cut short or damaged, fetch it again");
    LAMINA_CHECK(bytes && *bytes == entry.end - entry.begin, path, ": tensor ", shown(name), " ", entry.shape, " of ",
                 entry.dtype, " needs ", bytes ? str(*bytes) : "more than 2^63", " bytes and has ",
                 entry.end - entry.begin, "; the file is damaged, fetch it again");
    header.names.push_back(name);
  }
  std::sort(header.names.begin(), header.names.end(), [&](const std::string& a, const std::string& b) {
    const auto& x = header.entries.at(a);
    const auto& y = header.entries.at(b);
    return std::tie(x.begin, x.end, a) < std::tie(y.begin, y.end, b);
  });
  uint64_t covered = 0;
  for (const std::string& name : header.names) {
    const auto& entry = header.entries.at(name);
    LAMINA_CHECK(entry.begin == covered, path, ": tensor ", shown(name), " begins at byte ", entry.begin,
                 " and the one before it ends at ", covered, ": tensors must neither overlap nor leave gaps");
    covered = entry.end;
  }
  LAMINA_CHECK(covered == data_bytes, path, ": the tensors end at byte ", covered, " and the data at ", data_bytes,
               "; the file is damaged, fetch it again");
  return header;
}

std::string_view safetensors_name(DType dtype) {
  return std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& type) { return type.second == dtype; })->first;
}

}  // namespace lamina::io
