#include "lamina/io/hf/config_map.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace lamina::io::hf {
namespace {

using arch::Activation;
using arch::Gate;
using arch::Json;

/// Names of the activations in config.json. When writing, the first name of an activation is used, unless the family's
/// default name means the same one.
constexpr std::pair<std::string_view, Activation> kActivations[] = {
    {"relu", Activation::relu},          {"gelu", Activation::gelu},
    {"gelu_python", Activation::gelu},   {"gelu_pytorch_tanh", Activation::gelu_tanh},
    {"gelu_new", Activation::gelu_tanh}, {"gelu_fast", Activation::gelu_tanh},
    {"silu", Activation::silu},          {"swish", Activation::silu},
    {"relu2", Activation::relu2},        {"sigmoid", Activation::sigmoid},
    {"tanh", Activation::tanh},          {"linear", Activation::none},
};
constexpr std::pair<Activation, Gate> kGates[] = {
    {Activation::sigmoid, Gate::glu},          {Activation::relu, Gate::reglu},  {Activation::gelu, Gate::geglu},
    {Activation::gelu_tanh, Gate::geglu_tanh}, {Activation::silu, Gate::swiglu}, {Activation::none, Gate::liglu},
};

/// Keys without influence on the architecture that any config.json may hold: tokens, training, generation, bookkeeping.
constexpr std::string_view kHousekeeping[] = {
    "model_type",
    "architectures",
    "transformers_version",
    "torch_dtype",
    "dtype",
    "use_cache",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "unk_token_id",
    "sep_token_id",
    "cls_token_id",
    "mask_token_id",
    "initializer_range",
    "_name_or_path",
    "name_or_path",
    "_commit_hash",
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "finetuning_task",
    "task_specific_params",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "return_dict_in_generate",
    "output_scores",
    "chunk_size_feed_forward",
    "attention_dropout",
    "hidden_dropout",
    "resid_pdrop",
    "embd_pdrop",
    "attn_pdrop",
    "residual_dropout",
    "embedding_dropout",
    "classifier_dropout",
    "dropout",
    "activation_dropout",
    "pretraining_tp",
    "auto_map",
    "_attn_implementation",
    "attn_implementation",
    "_attn_implementation_autoset",
    "gradient_checkpointing",
    "max_length",
    "min_length",
    "do_sample",
    "early_stopping",
    "num_beams",
    "num_beam_groups",
    "diversity_penalty",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "bad_words_ids",
    "num_return_sequences",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "remove_invalid_values",
    "exponential_decay_length_penalty",
    "suppress_tokens",
    "begin_suppress_tokens",
    "prefix",
    "tokenizer_class",
    "tf_legacy_loss",
    "torchscript",
    "use_bfloat16",
    "is_decoder",
    "output_past",
    "output_router_logits",
    "router_jitter_noise",
};

std::vector<std::string_view> split(std::string_view keys) {
  std::vector<std::string_view> names;
  for (size_t begin = 0; begin <= keys.size();) {
    const size_t end = std::min(keys.find('|', begin), keys.size());
    names.push_back(keys.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

std::string shown(const Json& json) {
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

}  // namespace

ConfigMap::ConfigMap(const Json& config, std::string name) : given_(&config), name_(std::move(name)) {
  LAMINA_CHECK(config.is_object(), name_, ": ", shown(config), ", expected an object of settings");
}
ConfigMap::ConfigMap() : written_(std::make_unique<Json>(Json::object())) {}
ConfigMap::~ConfigMap() = default;

void ConfigMap::fail(std::string_view key, const std::string& message) const {
  throw Error(str(name_, ": ", key, ": ", message));
}

const Json* ConfigMap::find(std::string_view keys) {
  const Json* found = nullptr;
  for (const std::string_view key : split(keys)) {
    known_.emplace_back(key);
    if (given_ == nullptr) continue;
    const auto here = given_->find(std::string(key));
    if (here == given_->end()) continue;
    if (found != nullptr && !found->is_null() && !here->is_null() && *found != *here) {
      fail(keys, str("both ", shown(*found), " and ", shown(*here), "; keep one"));
    }
    if (found == nullptr || found->is_null()) found = &*here;
  }
  return found;
}

Json& ConfigMap::slot(std::string_view keys) { return (*written_)[std::string(split(keys).front())]; }

int64_t ConfigMap::whole(std::string_view key, const Json& json) const {
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX}) fail(key, "beyond 2^63");
  if (json.is_number_integer()) return json.get<int64_t>();
  const double value = json.is_number() ? json.get<double>() : std::nan("");
  if (!(std::abs(value) <= 9007199254740992.0) || value != std::floor(value)) {
    fail(key, str("given ", shown(json), ", expected a whole number"));
  }
  return static_cast<int64_t>(value);
}

double ConfigMap::number(std::string_view key, const Json& json) const {
  if (!json.is_number()) fail(key, str("given ", shown(json), ", expected a number"));
  return json.get<double>();
}

template <class T, class F>
void ConfigMap::value(std::string_view keys, T& field, const T& otherwise, const F& from_json) {
  const Json* found = find(keys);
  if (reading()) {
    field = found == nullptr ? otherwise : from_json(*found);
  } else if constexpr (requires { field.has_value(); }) {
    slot(keys) = field ? Json(*field) : Json();
  } else {
    slot(keys) = field;
  }
}

void ConfigMap::entry(std::string_view keys, int64_t& field, int64_t otherwise) {
  value(keys, field, otherwise, [&](const Json& json) { return whole(keys, json); });
}
void ConfigMap::entry(std::string_view keys, double& field, double otherwise) {
  value(keys, field, otherwise, [&](const Json& json) { return number(keys, json); });
}
void ConfigMap::entry(std::string_view keys, bool& field, bool otherwise) {
  value(keys, field, otherwise, [&](const Json& json) {
    if (!json.is_boolean()) fail(keys, str("given ", shown(json), ", expected true or false"));
    return json.get<bool>();
  });
}
void ConfigMap::entry(std::string_view keys, std::optional<int64_t>& field, std::optional<int64_t> otherwise) {
  value(keys, field, otherwise,
        [&](const Json& json) { return json.is_null() ? std::nullopt : std::optional(whole(keys, json)); });
}
void ConfigMap::entry(std::string_view keys, std::optional<double>& field, std::optional<double> otherwise) {
  value(keys, field, otherwise,
        [&](const Json& json) { return json.is_null() ? std::nullopt : std::optional(number(keys, json)); });
}

void ConfigMap::entry(std::string_view keys, std::string& field, std::string_view otherwise) {
  value(keys, field, std::string(otherwise), [&](const Json& json) {
    if (!json.is_string()) fail(keys, str("given ", shown(json), ", expected a name"));
    return json.get<std::string>();
  });
}

void ConfigMap::encoder_decoder(arch::Encoder& encoder, int64_t start_token) {
  constexpr const char* kKey = "is_encoder_decoder";
  encoder_decoder_ = true;
  const Json* found = find(kKey);
  if (!reading()) slot(kKey) = true;
  if (found != nullptr && *found != true) fail(kKey, str(shown(*found), ", expected true"));
  std::optional<int64_t> start = encoder.start_token;
  entry("decoder_start_token_id", start, start_token);
  encoder.start_token = start.value_or(start_token);
}

void ConfigMap::activation(std::string_view keys, std::string_view otherwise,
                           const std::function<void(Activation)>& set, std::optional<Activation> now) {
  const Json* found = find(keys);
  if (reading()) {
    if (found != nullptr && !found->is_string()) fail(keys, str("given ", shown(*found), ", expected a name"));
    const std::string given = found == nullptr ? std::string(otherwise) : found->get<std::string>();
    std::vector<std::string> names;
    for (const auto& [name, activation] : kActivations) {
      if (name == given) return set(activation);
      names.emplace_back(name);
    }
    const std::string nearest = nearest_of(given.substr(0, 64), names);
    fail(keys, str("the activation \"", given.substr(0, 64), "\" is not known",
                   nearest.empty() ? "" : "; did you mean " + nearest + "?"));
  }
  std::string_view chosen;
  for (const auto& [name, activation] : kActivations) {
    if (now == activation && (chosen.empty() || name == otherwise)) chosen = name;
  }
  if (!chosen.empty()) slot(keys) = std::string(chosen);
}

void ConfigMap::entry(std::string_view keys, Activation& field, std::string_view otherwise) {
  activation(
      keys, otherwise, [&field](Activation read) { field = read; }, field);
}

void ConfigMap::entry(std::string_view keys, Gate& field, std::string_view otherwise) {
  std::optional<Activation> now;
  for (const auto& [activation, gate] : kGates) {
    if (gate == field) now = activation;
  }
  const auto set = [&](Activation read) {
    for (const auto& [activation, gate] : kGates) {
      if (activation == read) {
        field = gate;
        return;
      }
    }
    fail(keys, "this activation cannot gate");
  };
  activation(keys, otherwise, set, now);
}

void ConfigMap::flags(std::string_view keys, std::initializer_list<bool*> fields, bool otherwise) {
  bool all = **fields.begin();
  entry(keys, all, otherwise);
  if (!reading()) return;
  for (bool* field : fields) *field = all;
}

void ConfigMap::number_or_auto(std::string_view keys, std::optional<int64_t>& field) {
  value(keys, field, std::optional<int64_t>(), [&](const Json& json) {
    return json.is_string() && json.get<std::string>() == "auto" ? std::nullopt : std::optional(whole(keys, json));
  });
}

void ConfigMap::limits(std::string_view keys, double& low, std::optional<double>& high) {
  const Json* found = find(keys);
  if (!reading()) {
    if (high) slot(keys) = {low, *high};
    if (!high && low != 0.0) slot(keys) = {low, {{"__float__", "Infinity"}}};
    return;
  }
  low = 0.0;
  high.reset();
  if (found == nullptr) return;
  if (!found->is_array() || found->size() != 2) fail(keys, str("given ", shown(*found), ", expected [low, high]"));
  low = number(keys, (*found)[0]);
  const Json& upper = (*found)[1];
  const bool infinite = upper == "Infinity" || (upper.is_object() && upper.value("__float__", Json()) == "Infinity");
  if (!infinite) high = number(keys, upper);
}

void ConfigMap::layer_types(Draft& draft, const std::function<bool(int64_t)>& otherwise) {
  constexpr const char* kKey = "layer_types";
  const Json* found = find(kKey);
  if (!reading()) {
    Json& list = slot(kKey) = Json::array();
    for (const bool sliding : draft.sliding) list.push_back(sliding ? "sliding_attention" : "full_attention");
    return;
  }
  const bool given = found != nullptr && !found->is_null();
  const auto layers = static_cast<size_t>(draft.n_layers);
  if (given && (!found->is_array() || found->size() != layers)) {
    fail(kKey, str("expected a list of one name for each of the ", layers, " layers"));
  }
  draft.sliding.assign(layers, false);
  for (size_t i = 0; i < layers; ++i) {
    const Json type = given ? (*found)[i]
                            : Json(otherwise(draft.n_layers > 0 ? static_cast<int64_t>(i) : 0) ? "sliding_attention"
                                                                                               : "full_attention");
    draft.sliding[i] = type == "sliding_attention";
    if (!draft.sliding[i] && type != "full_attention") {
      fail(kKey, str("layer ", i, " is ", shown(type), ", expected sliding_attention or full_attention"));
    }
  }
  const bool any = std::find(draft.sliding.begin(), draft.sliding.end(), true) != draft.sliding.end();
  if (any && !draft.window) fail(kKey, "layers are sliding_attention, but sliding_window is not set");
}

void ConfigMap::attention_types(Draft& draft, const std::function<bool(int64_t)>& otherwise) {
  constexpr const char* kKey = "attention_types";
  const Json* found = find(kKey);
  if (!reading()) {
    Json names = Json::array();
    for (const bool sliding : draft.sliding) names.push_back(sliding ? "local" : "global");
    slot(kKey) = Json::array({Json::array({names, 1})});
    return;
  }
  const auto layers = static_cast<size_t>(draft.n_layers);
  draft.sliding.clear();
  const auto wrong = [&] { fail(kKey, str("expected [[[names], repeats], …] that name ", layers, " layers")); };
  if (found == nullptr || found->is_null()) {
    for (int64_t i = 0; i < draft.n_layers; ++i) draft.sliding.push_back(otherwise(i));
    return;
  }
  if (!found->is_array()) wrong();
  for (const Json& part : *found) {
    if (!part.is_array() || part.size() != 2 || !part[0].is_array() || !part[1].is_number_integer()) wrong();
    for (int64_t i = 0; i < part[1].get<int64_t>() && draft.sliding.size() <= layers; ++i) {
      for (const Json& name : part[0]) {
        if (name != "local" && name != "global") fail(kKey, str(shown(name), ", expected global or local"));
        draft.sliding.push_back(name == "local");
      }
      if (part[0].empty()) wrong();
    }
  }
  if (draft.sliding.size() != layers) wrong();
}

void ConfigMap::layer_numbers(std::string_view keys, Draft& draft, std::vector<bool>& chosen) {
  const Json* found = find(keys);
  if (!reading()) {
    Json& list = slot(keys) = Json::array();
    for (size_t i = 0; i < chosen.size(); ++i) {
      if (chosen[i]) list.push_back(i);
    }
    return;
  }
  chosen.resize(static_cast<size_t>(draft.n_layers));
  if (found == nullptr || found->is_null()) return;
  if (!found->is_array()) fail(keys, str("given ", shown(*found), ", expected a list of layers"));
  for (const Json& json : *found) {
    const int64_t layer = whole(keys, json);
    if (layer >= 0 && layer < draft.n_layers) chosen[static_cast<size_t>(layer)] = true;
  }
}

void ConfigMap::same_for_layers(std::string_view keys, const Draft& draft, int64_t& field, int64_t otherwise) {
  const Json* found = find(keys);
  if (!reading()) {
    slot(keys) = std::vector<int64_t>(static_cast<size_t>(draft.n_layers), field);
    return;
  }
  field = otherwise;
  if (found == nullptr) return;
  if (!found->is_array()) {
    field = whole(keys, *found);
    return;
  }
  if (static_cast<int64_t>(found->size()) != draft.n_layers) {
    fail(keys, str(found->size(), " numbers for ", draft.n_layers, " layers"));
  }
  for (const Json& json : *found) {
    field = whole(keys, json);
    if (json != found->front()) fail(keys, str("given ", shown(*found), "; layers that differ are not supported"));
  }
}

void ConfigMap::only(std::string_view keys, std::initializer_list<std::string_view> values, std::string_view why) {
  const Json* found = find(keys);
  if (found == nullptr) return;
  const std::string given = shown(*found);
  for (const std::string_view value : values) {
    if (value == given) return;
  }
  fail(keys, str(given, " is not supported, only ", *values.begin(), ": ", why));
}

void ConfigMap::ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) known_.emplace_back(key);
}

ConfigMap& ConfigMap::nested(std::string_view key) {
  static const Json kNothing = Json::object();
  const Json* found = find(key);
  if (reading()) {
    const Json* object = found == nullptr || found->is_null() ? &kNothing : found;
    children_.emplace_back(key, std::make_unique<ConfigMap>(*object, str(name_, ": ", key)));
  } else {
    children_.emplace_back(key, std::make_unique<ConfigMap>());
  }
  return *children_.back().second;
}

void ConfigMap::finish() {
  if (!encoder_decoder_) {
    only("is_encoder_decoder", {"false", "null"}, "an encoder of this family is not read");
  }
  only("quantization_config", {"null"}, "quantised weights are not read; fetch the unquantised model");
  for (const auto& [key, child] : children_) {
    child->finish();
    if (!reading()) slot(key) = child->written();
  }
  if (!reading()) return;
  known_.insert(known_.end(), std::begin(kHousekeeping), std::end(kHousekeeping));
  for (const auto& [key, json] : given_->items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const std::string nearest = nearest_of(key.substr(0, 64), known_);
    fail(key.substr(0, 64), str("not known for this family, and may change what the model computes; ",
                                nearest.empty() ? "remove the key if it does not" : "did you mean " + nearest + "?"));
  }
}

}  // namespace lamina::io::hf
