#include "lamina/arch/presets.h"

#include <nlohmann/json.hpp>

#include "lamina/arch/edit.h"
#include "lamina/base/files.h"
#include "lamina/base/suggest.h"

namespace lamina::arch {
namespace {

constexpr int kMaxBases = 8;

const PresetFile& find_preset(const std::string& name) {
  for (const PresetFile& file : preset_files()) {
    if (file.name == name) return file;
  }
  const std::string hint = did_you_mean(name, preset_names());
  throw Error(str("no preset \"", name, "\"; ", hint, hint.empty() ? "" : " ",
                  "`lamina presets` lists all; the name of a file ends in .json"));
}

ArchSpec read_level(std::string_view text, const std::string& name, int bases);

ArchSpec read_derived(const Json& json, const std::string& name, int bases) {
  LAMINA_CHECK(json["base"].is_string(), name, ": base: expected the name of a preset");
  LAMINA_CHECK(bases < kMaxBases, name, ": more than ", kMaxBases,
               " levels of base; check for a file that is its own base");
  const auto parent = json["base"].get<std::string>();
  const PresetFile& base = find_preset(parent);
  Json whole = spec_to_json(read_level(base.text, std::string(base.name), bases + 1), Defaults::write);
  std::vector<Problem> problems;
  for (const auto& [key, value] : json.items()) {
    if (key == "about") whole["about"] = value;
    if (key == "base" || key == "about" || (key == "set" && value.is_object())) continue;
    problems.push_back({"read", key, key == "set" ? "expected an object of path: value" : "unknown key next to base",
                        "a file with a base has base, about and set"});
  }
  const Json set = json.contains("set") && json["set"].is_object() ? json["set"] : Json::object();
  for (const auto& [path, value] : set.items()) {
    try {
      set_value(whole, path, value);
    } catch (const Error& error) {
      problems.push_back({"read", "set", error.what(), ""});
    }
  }
  ArchSpec spec = spec_from_json(whole, problems);
  if (!problems.empty()) throw SpecError(name, std::move(problems));
  return spec;
}

ArchSpec read_level(std::string_view text, const std::string& name, int bases) {
  const Json json = parse_json<Json>(text, name);
  if (json.is_object() && json.contains("base")) return read_derived(json, name, bases);
  std::vector<Problem> problems;
  ArchSpec spec = spec_from_json(json, problems);
  if (!problems.empty()) throw SpecError(name, std::move(problems));
  return spec;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const PresetFile& file : preset_files()) names.emplace_back(file.name);
  return names;
}

ArchSpec read_arch(std::string_view text, const std::string& name) { return read_level(text, name, 0); }

ArchSpec load_preset(const std::string& name) { return read_arch(find_preset(name).text, name); }

ArchSpec load_arch(const std::string& preset_or_file) {
  const bool is_file = preset_or_file.ends_with(".json") || preset_or_file.find('/') != std::string::npos;
  if (!is_file) return load_preset(preset_or_file);
  return read_arch(read_text(preset_or_file), preset_or_file);
}

}  // namespace lamina::arch
