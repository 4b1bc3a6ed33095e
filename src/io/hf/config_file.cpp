#include <cctype>
#include <nlohmann/json.hpp>

#include "lamina/arch/resolve.h"
#include "lamina/io/hf.h"
#include "lamina/io/hf/family.h"

namespace lamina::io {
namespace hf {
namespace {

using arch::Json;

constexpr const char* kTokens[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

/// Puts quotes around the bare word Infinity, which Python writes but JSON does not allow.
std::string with_quoted_infinities(std::string_view text) {
  std::string result;
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (inside && text[i] == '\\' && i + 1 < text.size()) result += text[i++];
    if (text[i] == '"') inside = !inside;
    constexpr std::string_view kWord = "Infinity";
    if (!inside && text.substr(i, kWord.size()) == kWord) {
      result += "\"Infinity\"";
      i += kWord.size() - 1;
    } else {
      result += text[i];
    }
  }
  return result;
}

std::string torch_name(DType dtype) {
  switch (dtype) {
    case DType::bf16: return "bfloat16";
    case DType::f16: return "float16";
    case DType::f64: return "float64";
    default: return "float32";
  }
}

/// The embedding row that pad_token_id refers to, or null if it is outside the vocabulary. A negative id counts from
/// the end. For families whose padding row gets no gradient.
Json meaning_of(const Json& token, int64_t vocab_size) {
  if (!token.is_number_integer()) return {};
  const int64_t row = token.get<int64_t>() + (token.get<int64_t>() < 0 ? vocab_size : 0);
  return row >= 0 && row < vocab_size ? Json(row) : Json();
}

/// Whether "architectures" names the class without a head.
bool names_headless(const Json& json, const Family& family) {
  const auto found = json.find("architectures");
  return family.headless && found != json.end() && found->is_array() && !found->empty() &&
         found->front() == std::string(family.headless->architecture);
}

void refuse_lone_encoder(const Json& json) {
  const auto found = json.find("architectures");
  if (found == json.end() || !found->is_array() || found->empty() || !found->front().is_string()) return;
  const std::string name = found->front().get<std::string>().substr(0, 64);
  LAMINA_CHECK(!name.ends_with("EncoderModel"), "architectures: \"", name,
               "\" is an encoder without its decoder, which is not read; give the whole model");
}

}  // namespace

Config read_config(std::string_view text, const std::string& name, std::optional<bool> headless) {
  const Json json = parse_json<Json>(with_quoted_infinities(text), name);
  LAMINA_CHECK(json.is_object(), name, ": expected an object of settings");
  const auto type = json.find("model_type");
  LAMINA_CHECK(type != json.end() && type->is_string(), name,
               ": has no model_type, which says what the other keys mean; add it");
  try {
    Config config;
    config.family = &family(type->get<std::string>());
    refuse_lone_encoder(json);
    ConfigMap map(json, name);
    Draft draft;
    draft.headless = headless.value_or(names_headless(json, *config.family));
    config.family->config(map, draft);
    map.finish();
    config.spec = arch::resolve(assemble(draft), name);
    for (const char* key : kTokens) {
      if (json.contains(key)) config.tokens[key] = json[key].dump(-1, ' ', false, Json::error_handler_t::replace);
    }
    return config;
  } catch (const arch::SpecError&) {
    throw;
  } catch (const Error& error) {
    const std::string message = error.what();
    throw Error(message.starts_with(name) ? message : name + ": " + message);
  }
}

std::string write_config(const Family& family, const arch::ArchSpec& resolved, const Metadata& tokens, DType dtype) {
  Draft draft = draft_of(resolved);
  draft.headless = is_headless(family, resolved);
  ConfigMap map;
  family.config(map, draft);
  map.finish();
  const std::string_view architecture = draft.headless ? family.headless->architecture : family.architecture;
  Json json = {{"architectures", {std::string(architecture)}}, {"model_type", std::string(family.model_type)}};
  json.update(map.written());
  for (const char* key : kTokens) {
    // Written as null rather than omitted: the family's default may be outside this vocabulary.
    const auto found = tokens.find(key);
    const Json given = found == tokens.end() ? Json() : try_parse_json<Json>(found->second).value_or(Json());
    const bool said = json.contains(key) && meaning_of(given, resolved.vocab_size) != json[key];
    if (!said) json[key] = given;
  }
  json["torch_dtype"] = torch_name(dtype);
  json["use_cache"] = true;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hf

std::vector<std::string> hf_model_types() {
  std::vector<std::string> names;
  for (const hf::Family& family : hf::families()) names.emplace_back(family.model_type);
  return names;
}

arch::ArchSpec read_hf_config(std::string_view text, const std::string& name) {
  return hf::read_config(text, name).spec;
}

}  // namespace lamina::io
