#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/arch/json.h"
#include "lamina/io/hf/draft.h"

namespace lamina::io::hf {

/// How a family writes its RoPE settings.
struct RopeKeys {
  double theta = 10000.0;                     ///< default
  std::optional<double> fraction;             ///< default rotated fraction of a head; unset: the whole head, always
  std::string_view theta_key = "rope_theta";  ///< key of theta in the old form, next to rope_scaling
  std::string_view fraction_key = "partial_rotary_factor";
  bool longrope_only = false;  ///< rejects other scalings; the original context length may be a top-level key
  const arch::RopeScaling* scaling = nullptr;  ///< default scaling if the file has none
  bool alpha = false;    ///< dynamic scaling with a key alpha means NTK-aware scaling with that factor
  bool mscales = false;  ///< longrope scales cos and sin by short_mscale = long_mscale
};

/// Layers i with i % period == offset.
struct LayerPeriod {
  int64_t period = 1;
  int64_t offset = 0;
};

/// Length of a list in the file: one element per layer, or a shorter pattern that repeats over the layers.
enum class ListLength : uint8_t { whole, repeated };

/// The keys of a config.json, each listed once for reading and writing: an entry reads the key into a field of the
/// draft, or writes the field under the key. Any other key is an Error, because it may change the computation. Aliases
/// are given as "name|other|old": the first is written, any is read, and two that disagree are an Error.
class ConfigMap {
 public:
  /// Creates a map that reads `config`, which must outlive the map. `name` begins messages.
  ConfigMap(const arch::Json& config, std::string name);
  /// Creates a map that writes.
  ConfigMap();
  ~ConfigMap();
  ConfigMap(const ConfigMap&) = delete;
  ConfigMap& operator=(const ConfigMap&) = delete;

  bool reading() const { return given_ != nullptr; }

  // `otherwise` is the family's default for a missing key. null means that an option is unset.
  void entry(std::string_view keys, int64_t& field, int64_t otherwise);
  void entry(std::string_view keys, double& field, double otherwise);
  void entry(std::string_view keys, bool& field, bool otherwise);
  void entry(std::string_view keys, std::optional<int64_t>& field, std::optional<int64_t> otherwise);
  void entry(std::string_view keys, std::optional<double>& field, std::optional<double> otherwise);
  void entry(std::string_view keys, std::string& field, std::string_view otherwise);
  /// Values are the names of the activation table: gelu, gelu_new, silu, …
  void entry(std::string_view keys, arch::Activation& field, std::string_view otherwise);
  void entry(std::string_view keys, arch::Gate& field, std::string_view otherwise);
  /// One key that sets several fields to the same value.
  void flags(std::string_view keys, std::initializer_list<bool*> fields, bool otherwise);
  /// A number, or "auto" if unset.
  void number_or_auto(std::string_view keys, std::optional<int64_t>& field);
  /// A pair [low, high]. An infinite `high` leaves the field unset.
  void limits(std::string_view keys, double& low, std::optional<double>& high);

  /// "layer_types": which layers have a sliding window. If the list is missing, `otherwise(layer)` decides.
  void layer_types(Draft& draft, const std::function<bool(int64_t)>& otherwise);
  /// A list with the name `yes` or `no` for each layer. Sets `chosen` for the layers with `yes`. If the list is missing
  /// or null, `otherwise(layer)` decides.
  void named_layers(std::string_view keys, Draft& draft, std::vector<bool>& chosen, std::string_view yes,
                    std::string_view no, const std::function<bool(int64_t)>& otherwise);
  /// A list of 0 and 1, one number per layer. Sets `zeros` for the layers with 0.
  void zero_layers(std::string_view keys, Draft& draft, std::vector<bool>& zeros,
                   const std::function<bool(int64_t)>& otherwise);
  /// attention_types, for example [[["global", "local"], 12]]: patterns of layers and how often each repeats. Local
  /// layers have a sliding window.
  void attention_types(Draft& draft, const std::function<bool(int64_t)>& otherwise);
  /// moe_layers or interleave_moe_layer_step: which layers have experts. Sets draft.dense for the others.
  void expert_layers(Draft& draft);
  /// A list of layer indices. Sets `chosen` for these layers.
  void layer_numbers(std::string_view keys, Draft& draft, std::vector<bool>& chosen);
  /// A list with the kind of each layer. `other` names the layers without attention (Draft::other) and `attention`
  /// those with it; both may hold aliases, "name|old".
  void layer_kinds(std::string_view keys, Draft& draft, std::string_view other, std::string_view attention,
                   const std::function<bool(int64_t)>& otherwise, ListLength length = ListLength::whole);
  /// Two keys that select layers: every period-th one, starting at an offset.
  void every(std::string_view period_key, std::string_view offset_key, const Draft& draft, std::vector<bool>& chosen,
             LayerPeriod otherwise);
  /// A list of `count` numbers. A missing or null key gives an empty list; an empty list is written as ones.
  void factors(std::string_view keys, std::vector<double>& field, size_t count);
  /// A boolean that the file holds as one of two names. null means `no`.
  void named(std::string_view keys, bool& field, std::string_view yes, std::string_view no);
  /// A number that is equal in all layers. The file holds it once, or as a list with one element per layer; it is
  /// written as a list.
  void same_for_layers(std::string_view keys, const Draft& draft, int64_t& field, int64_t otherwise);
  /// The model's RoPE, in the old form (rope_theta, rope_scaling) and the new one (rope_parameters). Both are written,
  /// for old and new versions of transformers.
  void rope(Draft& draft, const RopeKeys& keys);
  /// Like rope(), with separate settings for the layers with a sliding window.
  void local_and_global_rope(Draft& draft, double local_theta, double global_theta,
                             std::string_view global_key = "rope_theta",
                             std::string_view local_key = "rope_local_base_freq");

  /// A value that is the same in every model of the family. Sets it when reading. When writing, the caller reads the
  /// result back and compares, which reveals a different value.
  template <class T>
  void constant(T& field, const std::type_identity_t<T>& value) const {
    if (reading()) field = value;
  }
  /// Returns the alternative `A` of the variant, which the family always uses. Replaces any other alternative.
  template <class A, class V>
  A& as(V& variant) const {
    if (!std::holds_alternative<A>(variant)) variant = A{};
    return std::get<A>(variant);
  }
  template <class T>
  static T& need(std::optional<T>& option) {
    return option ? *option : option.emplace();
  }

  /// A key that may only have one of these values (as JSON); the first is the default.
  void only(std::string_view keys, std::initializer_list<std::string_view> values, std::string_view why);
  /// Accepts keys that do not affect the computation, with any value.
  void ignore(std::initializer_list<std::string_view> keys);
  /// The family has an encoder and a decoder: requires and writes is_encoder_decoder = true. `start_token` is the
  /// decoder's first token if the file does not give one.
  void encoder_decoder(arch::Encoder& encoder, int64_t start_token);
  /// A nested object with its own entries.
  ConfigMap& nested(std::string_view key);

  /// Call after the last entry: any other key in the file is an Error that suggests the nearest one.
  void finish();
  /// The JSON written so far.
  const arch::Json& written() const { return *written_; }
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;

 private:
  /// The value of the first of the keys that exists, or null. Marks all of them as known.
  const arch::Json* find(std::string_view keys);
  arch::Json& slot(std::string_view keys);
  template <class T, class F>
  void value(std::string_view keys, T& field, const T& otherwise, const F& from_json);
  int64_t whole(std::string_view key, const arch::Json& json) const;
  double number(std::string_view key, const arch::Json& json) const;
  void activation(std::string_view keys, std::string_view otherwise, const std::function<void(arch::Activation)>& set,
                  std::optional<arch::Activation> now);
  const arch::Json* rope_object(std::string_view key);
  void read_rope(const arch::Json* object, arch::Rope& rope, const Draft& draft, const RopeKeys& keys);
  void write_rope(const arch::Rope& rope, const RopeKeys& keys, arch::Json& object) const;

  const arch::Json* given_ = nullptr;
  bool encoder_decoder_ = false;
  std::string name_;
  std::unique_ptr<arch::Json> written_;
  std::vector<std::string> known_;
  std::vector<std::pair<std::string, std::unique_ptr<ConfigMap>>> children_;
};

}  // namespace lamina::io::hf
