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

/// How a family spells its rotation.
struct RopeKeys {
  double theta = 10000.0;                     ///< where the file does not say
  std::optional<double> fraction;             ///< of a head that is rotated, by default; unset: always the whole head
  std::string_view theta_key = "rope_theta";  ///< old spelling, beside rope_scaling
  std::string_view fraction_key = "partial_rotary_factor";
  bool longrope_only = false;                  ///< other scalings are refused; the length of training may stand outside
  const arch::RopeScaling* scaling = nullptr;  ///< where the file says nothing of it
};

/// The keys of a config.json, each named once for both directions: an entry reads the key into a field of the draft, or
/// writes the field under the key. What a file says beside the entries is an error, because it may change the maths.
/// Keys may be given as "name|other|old": the first is written, any is read, two that disagree are an error.
class ConfigMap {
 public:
  /// Reads `config`, which must outlive the map; `name` begins messages.
  ConfigMap(const arch::Json& config, std::string name);
  /// Writes.
  ConfigMap();
  ~ConfigMap();
  ConfigMap(const ConfigMap&) = delete;
  ConfigMap& operator=(const ConfigMap&) = delete;

  bool reading() const { return given_ != nullptr; }

  // `otherwise` is what the family's own configuration means by a missing key. null is an option that is unset.
  void entry(std::string_view keys, int64_t& field, int64_t otherwise);
  void entry(std::string_view keys, double& field, double otherwise);
  void entry(std::string_view keys, bool& field, bool otherwise);
  void entry(std::string_view keys, std::optional<int64_t>& field, std::optional<int64_t> otherwise);
  void entry(std::string_view keys, std::optional<double>& field, std::optional<double> otherwise);
  /// By the names of the activation table: gelu, gelu_new, silu, …
  void entry(std::string_view keys, arch::Activation& field, std::string_view otherwise);
  void entry(std::string_view keys, arch::Gate& field, std::string_view otherwise);
  /// One switch for several fields.
  void flags(std::string_view keys, std::initializer_list<bool*> fields, bool otherwise);
  /// A number, or "auto" for unset.
  void number_or_auto(std::string_view keys, std::optional<int64_t>& field);
  /// [low, high], an infinite high being unset.
  void limits(std::string_view keys, double& low, std::optional<double>& high);

  /// "layer_types": which layers have a window; a missing list means `otherwise(layer)`.
  void layer_types(Draft& draft, const std::function<bool(int64_t)>& otherwise);
  /// A list of 0 and 1, one per layer: the layers where it is 0.
  void zero_layers(std::string_view keys, Draft& draft, std::vector<bool>& zeros,
                   const std::function<bool(int64_t)>& otherwise);
  /// A list of layer numbers.
  void layer_numbers(std::string_view keys, Draft& draft, std::vector<bool>& chosen);
  /// The model's rotation, in the old spelling (rope_theta, rope_scaling) and the new (rope_parameters). Both are
  /// written, so that every version of the reader finds its own.
  void rope(Draft& draft, const RopeKeys& keys);
  /// As rope(), with another one for the layers that have a window.
  void local_and_global_rope(Draft& draft, double local_theta, double global_theta);

  /// What the family does not leave to its file: set when reading. When writing, comparing what is read back shows it.
  template <class T>
  void constant(T& field, const std::type_identity_t<T>& value) const {
    if (reading()) field = value;
  }
  /// The alternative the family has.
  template <class A, class V>
  A& as(V& variant) const {
    if (!std::holds_alternative<A>(variant)) variant = A{};
    return std::get<A>(variant);
  }
  template <class T>
  static T& need(std::optional<T>& option) {
    return option ? *option : option.emplace();
  }

  /// A key that may only have one of these values (as JSON), the first of which is the default.
  void only(std::string_view keys, std::initializer_list<std::string_view> values, std::string_view why);
  /// Keys that change nothing a model computes.
  void ignore(std::initializer_list<std::string_view> keys);
  /// An object inside the file, with entries of its own.
  ConfigMap& nested(std::string_view key);

  /// After the last entry: anything else the file says is an Error that names the nearest key.
  void finish();
  /// What was written.
  const arch::Json& written() const { return *written_; }
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;

 private:
  /// The value under the first of the keys that is there, or null. Marks all as known.
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
  std::string name_;
  std::unique_ptr<arch::Json> written_;
  std::vector<std::string> known_;
  std::vector<std::pair<std::string, std::unique_ptr<ConfigMap>>> children_;
};

}  // namespace lamina::io::hf
