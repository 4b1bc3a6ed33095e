#include "lamina/io/hf/sentence_transformers.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lamina/base/files.h"
#include "lamina/base/json.h"
#include "lamina/io/safetensors.h"

namespace lamina::io {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kModules = "modules.json";
constexpr const char* kPrompts = "config_sentence_transformers.json";
/// Names that versions of the library gave the settings of its Transformer module.
constexpr std::array<const char*, 7> kTextLimits{"sentence_bert_config.json",       "sentence_roberta_config.json",
                                                 "sentence_distilbert_config.json", "sentence_camembert_config.json",
                                                 "sentence_albert_config.json",     "sentence_xlm-roberta_config.json",
                                                 "sentence_xlnet_config.json"};

std::string shown(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60); }

/// The object of a settings file. Keys are read once; any other key may change the vectors, so it is an Error.
class Settings {
 public:
  Settings(std::string_view text, std::string name) : name_(std::move(name)), json_(parse_json<Json>(text, name_)) {
    LAMINA_CHECK(json_.is_object(), name_, ": expected an object of settings");
  }

  /// The value, or null if it is missing.
  const Json& value(const char* key) {
    static const Json kNull;
    known_.emplace_back(key);
    const auto found = json_.find(key);
    return found == json_.end() ? kNull : *found;
  }
  bool flag(const char* key, bool otherwise) {
    const Json& json = value(key);
    if (json.is_null()) return otherwise;
    if (!json.is_boolean()) fail(key, str(shown(json), ", expected true or false"));
    return json.get<bool>();
  }
  std::optional<int64_t> count(const char* key) {
    const Json& json = value(key);
    if (json.is_null()) return {};
    if (!json.is_number_integer() || json.get<int64_t>() < 1) fail(key, str(shown(json), ", expected a number from 1"));
    return json.get<int64_t>();
  }
  /// Text; null is empty.
  std::string text(const char* key) {
    const Json& json = value(key);
    if (json.is_null()) return "";
    if (!json.is_string()) fail(key, str(shown(json), ", expected text"));
    return json.get<std::string>();
  }
  void refuse_unknown() const {
    for (const auto& [key, json] : json_.items()) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      const std::string nearest = nearest_of(key.substr(0, 64), known_);
      fail(key.substr(0, 64), str("not known, and may change the vectors; ",
                                  nearest.empty() ? "remove the key if it does not" : "did you mean " + nearest + "?"));
    }
  }
  [[noreturn]] void fail(const std::string& key, const std::string& why) const {
    throw Error(str(name_, ": ", key, ": ", why));
  }

 private:
  std::string name_;
  Json json_;
  std::vector<std::string> known_;
};

/// The last part of a dotted Python name.
std::string last_part(const std::string& dotted) { return dotted.substr(dotted.rfind('.') + 1); }

/// Throws unless `path` stays inside the folder.
void check_path(const std::string& path, const std::string& where) {
  const fs::path parts(path);
  const bool leaves = parts.is_absolute() || std::find(parts.begin(), parts.end(), "..") != parts.end();
  LAMINA_CHECK(!leaves && path.find('\0') == std::string::npos, where, ": path: \"", path.substr(0, 100),
               "\" is not in the model's folder");
}

arch::Activation activation_of(Settings& settings) {
  using arch::Activation;
  constexpr std::pair<std::string_view, Activation> kNames[] = {
      {"Tanh", Activation::tanh}, {"Identity", Activation::none}, {"ReLU", Activation::relu},
      {"GELU", Activation::gelu}, {"SiLU", Activation::silu},     {"Sigmoid", Activation::sigmoid}};
  const std::string given = settings.text("activation_function");
  const std::string name = given.empty() ? "Tanh" : last_part(given);
  for (const auto& [known, activation] : kNames) {
    if (name == known) return activation;
  }
  settings.fail(
      "activation_function",
      str("\"", given.substr(0, 64), "\" is not supported; expected Tanh, Identity, ReLU, GELU, SiLU or Sigmoid"));
}

/// A Dense module; `width` is the size of the vector before it, and after it.
VectorDense read_dense(const std::string& folder, int64_t& width) {
  const std::string config = folder + "/config.json";
  Settings settings(read_text(config), config);
  VectorDense dense;
  dense.activation = activation_of(settings);
  const bool bias = settings.flag("bias", true);
  const auto in = settings.count("in_features");
  const auto out = settings.count("out_features");
  for (const char* key : {"module_input_name", "module_output_name"}) {
    const std::string given = settings.text(key);
    if (!given.empty() && given != "sentence_embedding") {
      settings.fail(key, str("\"", given.substr(0, 64), "\", only sentence_embedding is supported"));
    }
  }
  settings.refuse_unknown();
  if (in != width) settings.fail("in_features", str(in.value_or(0), ", the vectors have ", width, " numbers"));
  if (!out) settings.fail("out_features", "is missing");
  const std::string weights = folder + "/model.safetensors";
  LAMINA_CHECK(path_exists(weights), folder, ": has no model.safetensors, the weights of its linear layer",
               path_exists(folder + "/pytorch_model.bin") ? " (pytorch_model.bin is not read: it may run code)" : "");
  const SafetensorsFile file = SafetensorsFile::open(weights, Device::cpu());
  const auto tensor = [&](const std::string& name, const Shape& shape) {
    LAMINA_CHECK(file.contains(name), weights, ": has no tensor '", name, "'");
    LAMINA_CHECK(file.shape(name) == shape && is_floating(file.dtype(name)), weights, ": tensor '", name, "' is ",
                 file.dtype(name), " ", file.shape(name), ", config.json means floating numbers ", shape);
    return file.tensor(name).to(DType::f32);
  };
  dense.weight = tensor("linear.weight", {*out, *in});
  if (bias) dense.bias = tensor("linear.bias", {*out});
  for (const std::string& name : file.names()) {
    LAMINA_CHECK(name == "linear.weight" || (bias && name == "linear.bias"), weights, ": tensor '", name,
                 "' has no place in a linear layer", bias ? "" : " without bias");
  }
  width = *out;
  return dense;
}

std::string text_limits_file(const std::string& folder) {
  for (const char* name : kTextLimits) {
    if (path_exists(fs::path(folder) / name)) return name;
  }
  return "";
}

std::vector<SentenceModule> modules_of(const std::string& folder) {
  const std::string path = (fs::path(folder) / kModules).string();
  return parse_modules(read_text(path), path);
}

std::string inside(const std::string& folder, const std::string& path) {
  return path.empty() ? folder : (fs::path(folder) / path).string();
}

}  // namespace

std::vector<SentenceModule> parse_modules(std::string_view text, const std::string& name) {
  const auto json = parse_json<Json>(text, name);
  LAMINA_CHECK(json.is_array() && !json.empty(), name, ": expected a list of modules");
  std::vector<SentenceModule> modules;
  for (size_t i = 0; i < json.size(); ++i) {
    const std::string where = str(name, ": module ", i);
    const Json& entry = json[i];
    const auto text_of = [&](const char* key) {
      LAMINA_CHECK(entry.is_object() && entry.contains(key) && entry[key].is_string(), where,
                   ": expected an object with texts \"type\" and \"path\"");
      return entry[key].get<std::string>();
    };
    SentenceModule module{last_part(text_of("type")), text_of("path")};
    check_path(module.path, where);
    const std::string given = module.kind.substr(0, 64);
    const bool first = i < 2 && given == (i == 0 ? "Transformer" : "Pooling");
    const bool later = i >= 2 && (given == "Dense" || given == "Normalize");
    LAMINA_CHECK(first || later, where, ": type \"", given, "\", expected ",
                 i == 0   ? "Transformer"
                 : i == 1 ? "Pooling"
                          : "Dense or Normalize",
                 "; other modules are not supported");
    LAMINA_CHECK(modules.empty() || modules.back().kind != "Normalize", where, ": ", given,
                 " after Normalize, which is supported as the last module only");
    modules.push_back(std::move(module));
  }
  LAMINA_CHECK(modules.size() >= 2, name, ": has no Pooling module, so it makes no vector of a text");
  return modules;
}

void parse_pooling(std::string_view text, const std::string& name, int64_t width, VectorRecipe& recipe) {
  using arch::PoolingKind;
  struct Mode {
    const char* key;
    const char* name;
    std::optional<PoolingKind> kind;
  };
  constexpr Mode kModes[] = {{"pooling_mode_cls_token", "cls", PoolingKind::first},
                             {"pooling_mode_mean_tokens", "mean", PoolingKind::mean},
                             {"pooling_mode_max_tokens", "max", PoolingKind::max},
                             {"pooling_mode_lasttoken", "lasttoken", PoolingKind::last},
                             {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", {}},
                             {"pooling_mode_weightedmean_tokens", "weightedmean", {}}};
  Settings settings(text, name);
  const std::string chosen = settings.text("pooling_mode");
  std::vector<const Mode*> modes;
  for (const Mode& mode : kModes) {
    // The library's default is the mean; a pooling_mode replaces the flags.
    const bool flag = settings.flag(mode.key, mode.kind == PoolingKind::mean);
    if (chosen.empty() ? flag : chosen == mode.name) modes.push_back(&mode);
  }
  recipe.pool_prompt = settings.flag("include_prompt", true);
  const auto dimension = settings.count("word_embedding_dimension");
  const auto also = settings.count("embedding_dimension");
  settings.refuse_unknown();
  constexpr const char* kSupported = "cls, mean, max or lasttoken";
  if (modes.empty() && chosen.empty()) {
    settings.fail("pooling_mode_*", str("all are false; expected one of ", kSupported));
  }
  if (modes.empty()) {
    settings.fail("pooling_mode", str("\"", chosen.substr(0, 64), "\", expected ", kSupported));
  }
  if (modes.size() > 1) {
    const char* otherwise = modes[1]->kind == PoolingKind::mean ? " (its default)" : "";
    settings.fail(modes[1]->key,
                  str("true", otherwise, " beside ", modes[0]->key, "; several poolings at once are not supported"));
  }
  if (!modes[0]->kind) settings.fail(modes[0]->key, str("is not supported; expected ", kSupported));
  for (const auto& [key, given] : {std::pair("word_embedding_dimension", dimension), {"embedding_dimension", also}}) {
    if (given && *given != width) settings.fail(key, str(*given, ", the encoder's hidden states have ", width));
  }
  recipe.pooling = *modes[0]->kind;
}

void parse_text_limits(std::string_view text, const std::string& name, VectorRecipe& recipe) {
  Settings settings(text, name);
  recipe.max_tokens = settings.count("max_seq_length");
  recipe.lowercase = settings.flag("do_lower_case", false);
  for (const char* key : {"model_args", "tokenizer_args", "config_args"}) {
    const Json& given = settings.value(key);
    if (!given.empty())
      settings.fail(key, str(shown(given), " may change the vectors; only an empty one is supported"));
  }
  settings.refuse_unknown();
}

void parse_prompts(std::string_view text, const std::string& name, VectorRecipe& recipe) {
  Settings settings(text, name);
  const Json& prompts = settings.value("prompts");
  if (!prompts.is_null() && !prompts.is_object()) settings.fail("prompts", "expected an object of texts");
  for (const auto& [key, prompt] : prompts.items()) {
    if (!prompt.is_string()) settings.fail("prompts", str(key.substr(0, 64), ": expected text"));
    recipe.prompts[key] = prompt.get<std::string>();
  }
  recipe.default_prompt = settings.text("default_prompt_name");
  if (!recipe.default_prompt.empty() && !recipe.prompts.contains(recipe.default_prompt)) {
    settings.fail("default_prompt_name",
                  str("\"", recipe.default_prompt.substr(0, 64), "\" is not one of the prompts"));
  }
}

bool is_sentence_transformer(const std::string& folder) { return file_exists(fs::path(folder) / kModules); }

std::string encoder_folder(const std::string& folder) { return inside(folder, modules_of(folder).front().path); }

VectorRecipe read_vector_recipe(const std::string& folder, int64_t width) {
  VectorRecipe recipe;
  recipe.trim = true;
  for (const SentenceModule& module : modules_of(folder)) {
    const std::string place = inside(folder, module.path);
    if (module.kind == "Transformer") {
      const std::string name = text_limits_file(place);
      const std::string path = place + "/" + name;
      if (!name.empty()) parse_text_limits(read_text(path), path, recipe);
    } else if (module.kind == "Pooling") {
      parse_pooling(read_text(place + "/config.json"), place + "/config.json", width, recipe);
    } else if (module.kind == "Dense") {
      recipe.dense.push_back(read_dense(place, width));
    } else {
      recipe.normalize = true;
    }
  }
  const std::string prompts = (fs::path(folder) / kPrompts).string();
  if (path_exists(prompts)) parse_prompts(read_text(prompts), prompts, recipe);
  return recipe;
}

bool is_recipe_entry(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  if (file_exists(path)) {
    return name == kModules || name == kPrompts ||
           std::find(kTextLimits.begin(), kTextLimits.end(), name) != kTextLimits.end();
  }
  const size_t digits = name.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string::npos || name[digits] != '_' || !folder_exists(path)) return false;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    const std::string file = at->path().filename().string();
    if (!file_exists(at->path()) || (file != "config.json" && file != "model.safetensors")) return false;
  }
  return !error;
}

std::vector<RecipeFile> vector_recipe_files(const std::string& folder) {
  std::vector<RecipeFile> files;
  const auto add = [&](const std::string& from, const std::string& name) {
    if (file_exists(from)) files.push_back({name, from, ""});
  };
  const std::string path = (fs::path(folder) / kModules).string();
  auto modules = parse_json<Json>(read_text(path), path);
  for (const SentenceModule& module : modules_of(folder)) {
    const std::string place = inside(folder, module.path);
    if (module.kind == "Transformer") {
      const std::string name = text_limits_file(place);
      if (!name.empty()) add(place + "/" + name, name);
    } else if (!module.path.empty()) {
      add(place + "/config.json", module.path + "/config.json");
      add(place + "/model.safetensors", module.path + "/model.safetensors");
    }
  }
  modules.front()["path"] = "";
  files.push_back({kModules, "", modules.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"});
  add((fs::path(folder) / kPrompts).string(), kPrompts);
  return files;
}

}  // namespace lamina::io
