#include <cmath>
#include <nlohmann/json.hpp>

#include "lamina/io/hf/config_map.h"

namespace lamina::io::hf {
namespace {

using arch::Json;

constexpr const char* kOriginal = "original_max_position_embeddings";

/// Reads the keys of a rope_parameters object one by one; a key that remains is an Error.
class RopeObject {
 public:
  using Fail = std::function<void(const std::string& key, const std::string& message)>;
  RopeObject(const Json& object, Fail fail) : left_(object), fail_(std::move(fail)) {}

  std::optional<double> number(const std::string& key) {
    const Json json = take(key);
    if (json.is_null()) return std::nullopt;
    if (!json.is_number()) fail_(key, "expected a number");
    return json.get<double>();
  }
  double needed(const std::string& key) {
    const std::optional<double> given = number(key);
    if (!given) fail_(key, "missing, and this scaling depends on it");
    return *given;
  }
  std::optional<int64_t> whole(const std::string& key) {
    const std::optional<double> given = number(key);
    if (!given) return std::nullopt;
    if (!(std::abs(*given) < 9e15) || *given != std::floor(*given)) fail_(key, "expected a whole number");
    return static_cast<int64_t>(*given);
  }
  std::vector<double> numbers(const std::string& key) {
    const Json json = take(key);
    if (!json.is_array() || json.size() > 100000) fail_(key, "expected a list of numbers");
    std::vector<double> list;
    for (const Json& element : json) {
      if (!element.is_number()) fail_(key, "expected a list of numbers");
      list.push_back(element.get<double>());
    }
    return list;
  }
  bool flag(const std::string& key, bool otherwise) {
    const Json json = take(key);
    if (json.is_null()) return otherwise;
    if (!json.is_boolean()) fail_(key, "expected true or false");
    return json.get<bool>();
  }
  std::string text(const std::string& key) {
    const Json json = take(key);
    if (json.is_null()) return "";
    if (!json.is_string()) fail_(key, "expected a name");
    return json.get<std::string>();
  }
  void wrong(const std::string& key, const std::string& message) { fail_(key, message); }
  void finish(const std::string& type) {
    if (!left_.empty()) fail_(left_.begin().key(), "not a key of the scaling " + type);
  }

 private:
  Json take(const std::string& key) {
    const auto found = left_.find(key);
    if (found == left_.end()) return {};
    Json json = *found;
    left_.erase(found);
    return json;
  }

  Json left_;
  Fail fail_;
};

arch::RopeScaling read_yarn(RopeObject& object, int64_t context) {
  arch::YarnScaling yarn;
  yarn.original_length = object.whole(kOriginal).value_or(context);
  yarn.factor = object.needed("factor");
  yarn.beta_fast = object.number("beta_fast").value_or(32.0);
  yarn.beta_slow = object.number("beta_slow").value_or(1.0);
  yarn.attention_factor = object.number("attention_factor");
  yarn.mscale = object.number("mscale");
  yarn.mscale_all_dim = object.number("mscale_all_dim");
  yarn.truncate = object.flag("truncate", true);
  return yarn;
}

arch::RopeScaling read_llama3(RopeObject& object, int64_t context) {
  arch::Llama3Scaling bands;
  bands.factor = object.needed("factor");
  bands.low_freq_factor = object.needed("low_freq_factor");
  bands.high_freq_factor = object.needed("high_freq_factor");
  bands.original_length = object.whole(kOriginal).value_or(context);
  return bands;
}

/// RoPE with a key "alpha": NTK-aware scaling, which changes only theta. Such files also hold keys of other scalings,
/// which have no effect.
std::optional<arch::RopeScaling> read_alpha(RopeObject& object) {
  const std::optional<double> alpha = object.number("alpha");
  if (!alpha || *alpha == 0.0) return std::nullopt;
  for (const char* key : {"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}) object.number(key);
  return arch::NtkScaling{*alpha};
}

/// Reads LongRoPE scaling. `outside` is the original context length from the top level of the file, if given; it takes
/// precedence.
arch::RopeScaling read_longrope(RopeObject& object, int64_t context, std::optional<int64_t> outside, bool mscales) {
  arch::LongRopeScaling scaling;
  scaling.short_factor = object.numbers("short_factor");
  scaling.long_factor = object.numbers("long_factor");
  scaling.original_length = object.whole(kOriginal).value_or(context);
  if (outside) scaling.original_length = outside;
  scaling.attention_factor = object.number("attention_factor");
  if (mscales) {
    scaling.attention_factor = object.needed("short_mscale");
    const double beyond = object.needed("long_mscale");
    if (beyond != *scaling.attention_factor) {
      object.wrong("long_mscale", str(beyond, " differs from short_mscale ", *scaling.attention_factor,
                                      "; one factor for all lengths is supported"));
    }
  }
  const std::optional<double> factor = object.number("factor");
  if (factor && !scaling.attention_factor && *scaling.original_length > 1) {
    const double length = std::log(static_cast<double>(*scaling.original_length));
    scaling.attention_factor = std::sqrt(1.0 + std::log(std::max(1.0, *factor)) / length);
  }
  return scaling;
}

arch::RopeScaling read_scaling(RopeObject& object, const std::string& type, int64_t context,
                               std::optional<int64_t> outside, const RopeKeys& keys, const RopeObject::Fail& fail) {
  if (type == "default") return arch::NoScaling{};
  if (type == "linear") return arch::LinearScaling{object.needed("factor")};
  if (type == "dynamic" && keys.alpha) {
    if (const auto fixed = read_alpha(object)) return *fixed;
  }
  if (type == "dynamic") return arch::DynamicNtkScaling{object.needed("factor"), context};
  if (type == "yarn") return read_yarn(object, context);
  if (type == "llama3") return read_llama3(object, context);
  if (type == "longrope" || type == "su") return read_longrope(object, context, outside, keys.mscales);
  fail("rope_type",
       "\"" + type.substr(0, 64) + "\" is not known; known are default, linear, dynamic, yarn, llama3, longrope");
  return arch::NoScaling{};
}

void write_scaling(const arch::NoScaling& /*scaling*/, Json& object) { object["rope_type"] = "default"; }
void write_scaling(const arch::LinearScaling& scaling, Json& object) {
  object["rope_type"] = "linear";
  object["factor"] = scaling.factor;
}
/// config.json has no name for NTK-aware scaling, so this writes "default". Reading the file back reveals the
/// difference.
void write_scaling(const arch::NtkScaling& /*scaling*/, Json& object) { object["rope_type"] = "default"; }
void write_scaling(const arch::DynamicNtkScaling& scaling, Json& object) {
  object["rope_type"] = "dynamic";
  object["factor"] = scaling.factor;
}
void write_scaling(const arch::YarnScaling& scaling, Json& object) {
  object["rope_type"] = "yarn";
  object["factor"] = scaling.factor;
  object[kOriginal] = scaling.original_length.value_or(0);
  object["beta_fast"] = scaling.beta_fast;
  object["beta_slow"] = scaling.beta_slow;
  if (scaling.attention_factor) object["attention_factor"] = *scaling.attention_factor;
  if (scaling.mscale) object["mscale"] = *scaling.mscale;
  if (scaling.mscale_all_dim) object["mscale_all_dim"] = *scaling.mscale_all_dim;
  if (!scaling.truncate) object["truncate"] = false;
}
void write_scaling(const arch::Llama3Scaling& scaling, Json& object) {
  object["rope_type"] = "llama3";
  object["factor"] = scaling.factor;
  object["low_freq_factor"] = scaling.low_freq_factor;
  object["high_freq_factor"] = scaling.high_freq_factor;
  object[kOriginal] = scaling.original_length.value_or(0);
}
void write_scaling(const arch::LongRopeScaling& scaling, Json& object) {
  object["rope_type"] = "longrope";
  object["short_factor"] = scaling.short_factor;
  object["long_factor"] = scaling.long_factor;
  object[kOriginal] = scaling.original_length.value_or(0);
  if (scaling.attention_factor) object["attention_factor"] = *scaling.attention_factor;
}

}  // namespace

const Json* ConfigMap::rope_object(std::string_view key) {
  const Json* found = find(key);
  if (found == nullptr || found->is_null()) return nullptr;
  if (!found->is_object()) fail(key, "expected an object");
  return found->empty() ? nullptr : found;
}

void ConfigMap::read_rope(const Json* object, arch::Rope& rope, const Draft& draft, const RopeKeys& keys) {
  const Json nothing = Json::object();
  const auto wrong = [this](const std::string& key, const std::string& message) {
    fail("rope_parameters." + key, message);
  };
  RopeObject inside(object == nullptr ? nothing : *object, wrong);
  std::optional<double> theta;
  std::optional<double> fraction;
  if (!keys.theta_key.empty()) entry(keys.theta_key, theta, {});
  if (!keys.fraction_key.empty()) entry(keys.fraction_key, fraction, {});
  // The inner value takes precedence: transformers may write its class default at the top level.
  const auto inner = [&](const std::string& key, std::optional<double> outside, double otherwise) {
    const std::optional<double> given = inside.number(key);
    return given ? *given : outside.value_or(otherwise);
  };
  rope.theta = inner("rope_theta", theta, keys.theta);
  rope.fraction = inner("partial_rotary_factor", fraction, keys.fraction.value_or(1.0));
  if (!keys.fraction && rope.fraction != 1.0) {
    fail("partial_rotary_factor", str(rope.fraction, ", but this family rotates whole heads; remove the key"));
  }
  std::optional<int64_t> outside;
  if (keys.longrope_only) entry(kOriginal, outside, 4096);
  const std::string old_type = inside.text("type");
  std::string type = inside.text("rope_type");
  if (type.empty()) type = old_type;
  if (type.empty()) type = object == nullptr && keys.scaling != nullptr ? "" : "default";
  if (type.empty()) {
    rope.scaling = *keys.scaling;
    return;
  }
  if (keys.longrope_only && type != "default" && type != "longrope" && type != "su") {
    wrong("rope_type", "\"" + type + "\" is not for this family, only default and longrope");
  }
  rope.scaling = read_scaling(inside, type, draft.spec.context, outside, keys, wrong);
  // Some files contain this key although these scalings do not use it.
  if (type == "default" || type == "linear" || type == "dynamic") inside.number(kOriginal);
  inside.finish(type);
}

void ConfigMap::write_rope(const arch::Rope& rope, const RopeKeys& keys, Json& object) const {
  std::visit([&object](const auto& scaling) { write_scaling(scaling, object); }, rope.scaling);
  const auto* ntk = std::get_if<arch::NtkScaling>(&rope.scaling);
  if (ntk != nullptr && keys.alpha) object.update({{"rope_type", "dynamic"}, {"alpha", ntk->factor}, {"factor", 1.0}});
  if (keys.mscales && object.contains("attention_factor")) {
    object["short_mscale"] = object["long_mscale"] = object["attention_factor"];
    object.erase("attention_factor");
  }
  object["rope_theta"] = rope.theta;
  if (!keys.fraction_key.empty() && (rope.fraction != 1.0 || keys.fraction.value_or(1.0) != 1.0)) {
    object["partial_rotary_factor"] = rope.fraction;
  }
}

void ConfigMap::rope(Draft& draft, const RopeKeys& keys) {
  arch::Rope& rope = need(draft.rope);
  const Json* old = rope_object("rope_scaling");
  const Json* current = rope_object("rope_parameters");
  if (reading()) return read_rope(old != nullptr ? old : current, rope, draft, keys);
  Json object = Json::object();
  write_rope(rope, keys, object);
  slot(keys.theta_key) = rope.theta;
  if (object.contains("partial_rotary_factor")) slot(keys.fraction_key) = rope.fraction;
  if (keys.longrope_only && object.contains(kOriginal)) slot(kOriginal) = object[kOriginal];
  const bool scaled = object["rope_type"] != "default";
  slot("rope_parameters") = object;
  object.erase("rope_theta");
  object.erase("partial_rotary_factor");
  if (scaled) slot("rope_scaling") = object;
}

void ConfigMap::local_and_global_rope(Draft& draft, double local_theta, double global_theta,
                                      std::string_view global_key, std::string_view local_key) {
  RopeKeys global{global_theta, {}, global_key};
  RopeKeys local{local_theta, {}, local_key};
  global.fraction_key = local.fraction_key = "";
  arch::Rope& rope = need(draft.rope);
  arch::Rope& near = need(draft.local);
  const Json* scaling = rope_object("rope_scaling");
  const Json* both = rope_object("rope_parameters");
  if (!reading()) {
    Json full = Json::object();
    Json sliding = Json::object();
    write_rope(rope, global, full);
    write_rope(near, local, sliding);
    slot(global_key) = rope.theta;
    slot(local_key) = near.theta;
    slot("rope_parameters") = {{"full_attention", full}, {"sliding_attention", sliding}};
    full.erase("rope_theta");
    if (full["rope_type"] != "default") slot("rope_scaling") = full;
    return;
  }
  const auto part = [&](const char* key) -> const Json* {
    if (both == nullptr) return nullptr;
    const auto found = both->find(key);
    if (found == both->end() || found->is_null()) return nullptr;
    if (!found->is_object()) fail("rope_parameters", str(key, " is not an object"));
    return &*found;
  };
  if (both != nullptr) {
    for (const auto& [key, json] : both->items()) {
      if (key != "full_attention" && key != "sliding_attention") {
        fail("rope_parameters." + key.substr(0, 64), "expected full_attention and sliding_attention");
      }
    }
  }
  read_rope(scaling != nullptr ? scaling : part("full_attention"), rope, draft, global);
  read_rope(part("sliding_attention"), near, draft, local);
}

}  // namespace lamina::io::hf
