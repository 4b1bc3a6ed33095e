#include <algorithm>
#include <cmath>
#include <cstring>

#include "lamina/arch/layers.h"
#include "lamina/base/files.h"
#include "lamina/io/hf.h"
#include "lamina/io/hf/family.h"
#include "lamina/io/hf/shards.h"

namespace lamina::io {
namespace hf {
namespace {

/// Suffixes of masks and tables in older files. They are ignored, because they follow from the configuration.
constexpr std::string_view kDerived[] = {".attn.bias",           ".attn.masked_bias",        ".attention.bias",
                                         ".attn.causal_mask",    ".attention.masked_bias",   ".rotary_emb.inv_freq",
                                         ".position_ids",        ".self_attn.slope_rate",    ".self_attn.query_decay",
                                         ".self_attn.key_decay", ".self_attn.diagonal_decay"};

/// Assembles the weights from the stored tensors.
class Loader {
 public:
  Loader(const Family& family, const arch::ArchSpec& spec, Shards& shards, const HfReadOptions& options,
         const Device& host)
      : family_(family), spec_(spec), shards_(shards), options_(options), device_(host) {}

  NamedTensors load() {
    const std::vector<Stored> list = stored_tensors(family_.names, spec_);
    int64_t total = 0;
    for (const Stored& stored : list) {
      total += bytes_of(stored);
      expected_.insert(stored.name);
    }
    int64_t done = 0;
    for (const Stored& stored : list) {
      load(stored);
      done += bytes_of(stored);
      if (options_.progress) options_.progress(done, total);
    }
    refuse_leftovers(list);
    NamedTensors tensors;
    for (const WeightSlot& slot : weight_slots(spec_)) tensors.push_back({slot.name, weights_.at(slot.name)});
    return tensors;
  }

 private:
  /// Size in the files in bytes. 0 if the tensor is missing; load() reports that.
  int64_t bytes_of(const Stored& stored) const {
    const std::string name = shards_.find(stored.name);
    return name.empty() ? 0 : stored.shape.numel() * static_cast<int64_t>(size_of(shards_.dtype(name)));
  }

  void load(const Stored& stored) {
    const std::string name = shards_.find(stored.name);
    LAMINA_CHECK(!name.empty(), shards_.folder(), ": has no tensor '", stored.name, "' ", stored.shape,
                 nearest_hint(stored.name), "; config.json and the weights are of different models");
    LAMINA_CHECK(shards_.shape(name) == stored.shape, shards_.folder(), ": tensor '", name, "' is ",
                 shards_.shape(name), ", config.json means ", stored.shape,
                 "; config.json and the weights are of different models");
    LAMINA_CHECK(is_floating(shards_.dtype(name)), shards_.folder(), ": tensor '", name, "' holds ",
                 shards_.dtype(name), ", expected f32, bf16, f16 or f64; quantised weights are not read");
    const Tensor tensor = shards_.take(name);
    if (is_view(stored)) {
      const std::vector<Tensor> views = views_of(stored, tensor);
      const bool copied = options_.dtype && *options_.dtype != tensor.dtype();
      for (size_t p = 0; p < views.size(); ++p) {
        weights_[stored.weights[p].name] = copied ? views[p].to(*options_.dtype) : views[p];
      }
      if (copied) shards_.release(name);
      return;
    }
    std::vector<Tensor> targets;
    for (const WeightSlot& weight : stored.weights) {
      const Tensor whole = target(weight, tensor.dtype(), name);
      targets.push_back(Tensor::borrow(whole.raw(), whole.shape(), whole.dtype(), copier_, nullptr));
    }
    unpack(stored, options_.dtype ? tensor.to(*options_.dtype) : tensor, targets);
    shards_.release(name);
  }

  /// The destination of the weight's stored tensors. Allocated on first use.
  Tensor target(const WeightSlot& weight, DType stored_dtype, const std::string& name) {
    const DType dtype = options_.dtype.value_or(stored_dtype);
    Tensor& tensor = weights_[weight.name];
    if (!tensor.defined()) tensor = Tensor::empty(weight.shape, dtype, device_);
    LAMINA_CHECK(tensor.dtype() == dtype, shards_.folder(), ": tensor '", name, "' holds ", dtype,
                 ", others of the same kind hold ", tensor.dtype(), "; read it with one type (--dtype)");
    return tensor;
  }

  std::string nearest_hint(const std::string& name) const {
    std::vector<std::string> strangers;
    for (const std::string& unused : shards_.unused()) {
      if (expected_.count(unused) == 0) strangers.push_back(unused);
    }
    const std::string nearest = nearest_of(name, strangers);
    return nearest.empty() ? "" : "; is '" + nearest + "' meant?";
  }

  void refuse_leftovers(const std::vector<Stored>& list) {
    for (const std::string& name : shards_.unused()) {
      if (is_derived(name) || is_later_layer(name) || is_extra(name) || is_constant(name)) continue;
      if (spec_.head.tied && is_head(name)) {
        LAMINA_CHECK(equals_embedding(name, list), shards_.folder(),
                     ": config.json says that the output projection is the embedding (tie_word_embeddings), but '",
                     name, "' differs from it; say tie_word_embeddings: false");
        continue;
      }
      throw Error(str(shards_.folder(), ": tensor '", name, "' ", shards_.shape(name),
                      " has no place in the model that config.json describes; are they of different models?"));
    }
  }

  static bool is_derived(const std::string& name) {
    for (const std::string_view end : kDerived) {
      if (name.ends_with(end)) return true;
    }
    return false;
  }

  bool is_later_layer(const std::string& name) const {
    constexpr std::string_view kPrefix = "model.layers.";
    if (!family_.later_layers || !name.starts_with(kPrefix)) return false;
    return std::atoll(name.c_str() + kPrefix.size()) >= arch::layer_count(spec_);
  }

  bool is_extra(const std::string& name) const {
    return std::any_of(family_.extras.begin(), family_.extras.end(),
                       [&](std::string_view prefix) { return name.starts_with(prefix); });
  }

  /// Whether the tensor is one of the family's constants. Throws an Error if its value is not the one that the
  /// architecture implies.
  bool is_constant(const std::string& name) {
    for (const NamedConstant& constant : named_constants(family_, spec_)) {
      if (constant.name != name) continue;
      const Tensor tensor = shards_.take(name);
      LAMINA_CHECK(tensor.numel() == 1, shards_.folder(), ": tensor '", name, "' ", tensor.shape(),
                   ", expected one number");
      const double value = tensor.to_vector<double>()[0];
      LAMINA_CHECK(std::abs(value - constant.value) <= 0.01 * std::abs(constant.value), shards_.folder(), ": tensor '",
                   name, "' is ", value, ", but this family has ", constant.value, "; other values are not read");
      shards_.release(name);
      return true;
    }
    return false;
  }

  bool is_head(const std::string& name) const {
    for (const NameEntry& entry : family_.names) {
      const bool head = entry.ours == "head.*" || entry.ours == "head.weight";
      if (head && name == std::string(entry.hf.substr(0, entry.hf.rfind('.'))) + ".weight") return true;
    }
    return false;
  }

  bool equals_embedding(const std::string& name, const std::vector<Stored>& list) {
    for (const Stored& stored : list) {
      if (stored.weights.front().name != "embedding.weight") continue;
      const Tensor a = shards_.take(shards_.find(stored.name));
      const Tensor b = shards_.take(name);
      const bool equal = a.shape() == b.shape() && a.dtype() == b.dtype() &&
                         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.nbytes())) == 0;
      shards_.release(name);
      return equal;
    }
    return false;
  }

  const Family& family_;
  const arch::ArchSpec& spec_;
  Shards& shards_;
  const HfReadOptions& options_;
  Device device_;
  /// One thread: memory bandwidth limits the copies, so more threads do not help.
  Device copier_ = Device::cpu(1);
  std::set<std::string> expected_;
  std::map<std::string, Tensor> weights_;
};

}  // namespace
}  // namespace hf

Checkpoint read_hf(const std::string& folder, const Device& device, const HfReadOptions& options) {
  LAMINA_CHECK(!options.dtype || is_floating(*options.dtype), "weights cannot be read as ", *options.dtype,
               "; use f32, bf16, f16 or f64");
  const std::string path = folder + "/config.json";
  const std::string text = read_text(path);
  hf::Config config = hf::read_config(text, path);
  hf::Shards shards(folder, device);
  if (const auto& headless = config.family->headless) {
    // Weights saved without a head may still name the class with one.
    config = hf::read_config(text, path, shards.find(std::string(headless->head)).empty());
  }
  Checkpoint checkpoint{config.spec, {}, std::string(config.family->model_type), config.tokens};
  checkpoint.tensors = hf::Loader(*config.family, checkpoint.spec, shards, options, device).load();
  return checkpoint;
}

}  // namespace lamina::io
