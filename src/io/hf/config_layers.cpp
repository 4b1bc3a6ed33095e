#include <algorithm>
#include <nlohmann/json.hpp>

#include "lamina/io/hf/config_map.h"

/// Keys of config.json that hold lists. Most of them give the kind of each layer.
namespace lamina::io::hf {
namespace {

using arch::Json;

/// Whether the string `name` is one of the alternatives in `names`, written "a|b|c".
bool among(std::string_view names, const Json& name) {
  if (!name.is_string()) return false;
  const auto given = name.get<std::string>();
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find('|', begin), names.size());
    if (names.substr(begin, end - begin) == given) return true;
    begin = end + 1;
  }
  return false;
}

std::string first_of(std::string_view names) { return std::string(names.substr(0, names.find('|'))); }

/// The shortest period, with its offset, that selects exactly the `chosen` layers. If none is chosen, a period beyond
/// the last layer.
LayerPeriod period_of(const std::vector<bool>& chosen) {
  const auto layers = static_cast<int64_t>(chosen.size());
  for (int64_t period = 1; period <= layers; ++period) {
    for (int64_t offset = 0; offset < period; ++offset) {
      bool fits = true;
      for (int64_t i = 0; i < layers && fits; ++i) fits = chosen[static_cast<size_t>(i)] == (i % period == offset);
      if (fits) return {period, offset};
    }
  }
  return {layers + 1, layers};
}

}  // namespace

void ConfigMap::layer_kinds(std::string_view keys, Draft& draft, std::string_view other, std::string_view attention,
                            const std::function<bool(int64_t)>& otherwise, ListLength length) {
  const Json* found = find(keys);
  if (!reading()) {
    Json& list = slot(keys) = Json::array();
    for (const bool recurrent : draft.other) list.push_back(first_of(recurrent ? other : attention));
    return;
  }
  const bool given = found != nullptr && !found->is_null();
  const auto layers = static_cast<size_t>(draft.n_layers);
  const bool repeated = length == ListLength::repeated;
  if (given && (!found->is_array() || found->empty() || (!repeated && found->size() != layers))) {
    fail(keys, str("expected a list of one name for each of the ", layers, " layers"));
  }
  draft.other.assign(layers, false);
  for (size_t i = 0; i < layers; ++i) {
    if (!given) {
      draft.other[i] = otherwise(static_cast<int64_t>(i));
      continue;
    }
    const Json& kind = (*found)[i % found->size()];
    draft.other[i] = among(other, kind);
    if (!draft.other[i] && !among(attention, kind)) {
      fail(keys, str("layer ", i, " is ", kind.dump().substr(0, 60), ", expected ", first_of(other), " or ",
                     first_of(attention)));
    }
  }
}

void ConfigMap::every(std::string_view period_key, std::string_view offset_key, const Draft& draft,
                      std::vector<bool>& chosen, LayerPeriod otherwise) {
  LayerPeriod use = reading() ? otherwise : period_of(chosen);
  entry(period_key, use.period, otherwise.period);
  entry(offset_key, use.offset, otherwise.offset);
  if (!reading()) return;
  if (use.period < 1) fail(period_key, str(use.period, ", expected a positive number"));
  chosen.clear();
  for (int64_t i = 0; i < draft.n_layers; ++i) chosen.push_back(i % use.period == use.offset);
}

void ConfigMap::factors(std::string_view keys, std::vector<double>& field, size_t count) {
  const Json* found = find(keys);
  if (!reading()) {
    slot(keys) = field.empty() ? std::vector<double>(count, 1.0) : field;
    return;
  }
  field.clear();
  if (found == nullptr || found->is_null()) return;
  if (!found->is_array() || found->size() != count) fail(keys, str("expected a list of ", count, " numbers"));
  for (const Json& json : *found) field.push_back(number(keys, json));
}

void ConfigMap::named(std::string_view keys, bool& field, std::string_view yes, std::string_view no) {
  const Json* found = find(keys);
  if (!reading()) {
    slot(keys) = std::string(field ? yes : no);
    return;
  }
  field = found != nullptr && among(yes, *found);
  if (field || found == nullptr || found->is_null() || among(no, *found)) return;
  fail(keys, str("given ", found->dump().substr(0, 60), ", expected ", yes, " or ", no));
}

void ConfigMap::zero_layers(std::string_view keys, Draft& draft, std::vector<bool>& zeros,
                            const std::function<bool(int64_t)>& otherwise) {
  const Json* found = find(keys);
  if (!reading()) {
    Json& list = slot(keys) = Json::array();
    for (const bool zero : zeros) list.push_back(zero ? 0 : 1);
    return;
  }
  const bool given = found != nullptr && !found->is_null();
  const auto layers = static_cast<size_t>(draft.n_layers);
  if (given && (!found->is_array() || found->size() != layers)) {
    fail(keys, str("expected a list of 0 or 1 for each of the ", layers, " layers"));
  }
  zeros.assign(layers, false);
  for (size_t i = 0; i < layers; ++i) {
    zeros[i] = given ? whole(keys, (*found)[i]) == 0 : otherwise(static_cast<int64_t>(i));
  }
}

}  // namespace lamina::io::hf
