#include <map>
#include <nlohmann/json.hpp>

#include "lamina/arch/edit.h"
#include "lamina/base/files.h"
#include "lamina/io/hf.h"
#include "lamina/io/hf/family.h"

namespace lamina::io {
namespace hf {
namespace {

constexpr size_t kShownDifferences = 8;

/// How closely a family can represent an architecture.
struct Fit {
  const Family* family = nullptr;
  std::vector<std::string> differences;  ///< empty: the family represents it exactly
};

Fit fit_of(const Family& family, const arch::ArchSpec& spec) {
  Fit fit{&family, {}};
  try {
    arch::ArchSpec meant = read_config(write_config(family, spec, {}, DType::f32), std::string(family.model_type)).spec;
    if (!family.states_context) meant.context = spec.context;
    for (const arch::Difference& row : arch::diff(canonical(spec), canonical(meant))) {
      fit.differences.push_back(
          str(row.path, ": ", row.a.empty() ? "absent" : row.a, ", the family has ", row.b.empty() ? "none" : row.b));
    }
    if (fit.differences.empty()) stored_tensors(written_names(family, spec), spec);
  } catch (const Error& error) {
    // This family cannot represent the architecture at all, so rank it after every family that can.
    fit.differences.assign(1000, std::string(error.what()));
  }
  return fit;
}

[[noreturn]] void refuse(const Fit& fit, bool named) {
  std::string text = str(named ? "the family " : "no family's files can hold this architecture; the nearest is ",
                         fit.family->model_type, named ? " cannot hold this architecture:" : ", which differs in:");
  const bool impossible = fit.differences.size() >= 1000;
  const size_t shown = impossible ? 1 : std::min(fit.differences.size(), kShownDifferences);
  for (size_t i = 0; i < shown; ++i) text += "\n  " + fit.differences[i];
  if (!impossible && fit.differences.size() > shown) text += str("\n  and ", fit.differences.size() - shown, " more");
  throw Error(text + "\nchange the architecture, or keep it in lamina's own format (--to lamina)");
}

const Family& choose(const Checkpoint& checkpoint, const std::string& wanted) {
  if (!wanted.empty()) {
    const Fit fit = fit_of(family(wanted), checkpoint.spec);
    if (!fit.differences.empty()) refuse(fit, true);
    return *fit.family;
  }
  std::optional<Fit> best;
  for (const Family& candidate : families()) {
    Fit fit = fit_of(candidate, checkpoint.spec);
    if (fit.differences.empty() && candidate.model_type == checkpoint.family) return candidate;
    if (!best || fit.differences.size() < best->differences.size()) best = std::move(fit);
  }
  if (!best->differences.empty()) refuse(*best, false);
  return *best->family;
}

/// Size of the tensor in bytes, as written.
int64_t bytes_of(const Stored& stored, DType dtype) {
  return stored.shape.numel() * static_cast<int64_t>(size_of(dtype));
}

class Writer {
 public:
  Writer(const Checkpoint& checkpoint, const HfWriteOptions& options, const CheckpointFolder& folder)
      : options_(options), folder_(folder) {
    for (const auto& [name, tensor] : checkpoint.tensors) weights_.emplace(name, tensor);
  }

  /// Writes the tensors, and the constants into the first file.
  void write(const std::vector<Stored>& list, const std::vector<NamedConstant>& constants) {
    for (const NamedConstant& constant : constants) {
      const DType dtype = dtype_of(list.front());
      constants_.push_back({constant.name, Tensor::full({}, constant.value, dtype, Device::cpu(1))});
      total_ += static_cast<int64_t>(size_of(dtype));
    }
    for (const Stored& stored : list) total_ += bytes_of(stored, dtype_of(stored));
    const std::vector<std::vector<const Stored*>> files = split(list);
    nlohmann::ordered_json map = nlohmann::ordered_json::object();
    for (size_t i = 0; i < files.size(); ++i) {
      const std::string name = files.size() == 1 ? "model.safetensors" : shard_name(i + 1, files.size());
      write_file(name, files[i]);
      for (const Stored* stored : files[i]) map[stored->name] = name;
      for (const NamedTensor& constant : constants_) map.emplace(constant.name, name);
    }
    if (files.size() == 1) return;
    const nlohmann::ordered_json index = {{"metadata", {{"total_size", total_}}}, {"weight_map", map}};
    write_text(folder_.path("model.safetensors.index.json"), index.dump(2) + "\n");
  }

 private:
  static std::string shard_name(size_t number, size_t count) {
    const auto digits = [](size_t value) {
      const std::string text = std::to_string(value);
      return std::string(text.size() < 5 ? 5 - text.size() : 0, '0') + text;
    };
    return str("model-", digits(number), "-of-", digits(count), ".safetensors");
  }

  DType dtype_of(const Stored& stored) const {
    return options_.dtype.value_or(weights_.at(stored.weights.front().name).dtype());
  }

  /// Splits the list in order; a new file starts if the next tensor would exceed the maximum size.
  std::vector<std::vector<const Stored*>> split(const std::vector<Stored>& list) const {
    std::vector<std::vector<const Stored*>> files(1);
    int64_t filled = 0;
    for (const Stored& stored : list) {
      const int64_t bytes = bytes_of(stored, dtype_of(stored));
      if (!files.back().empty() && filled + bytes > options_.max_shard_bytes) {
        files.emplace_back();
        filled = 0;
      }
      files.back().push_back(&stored);
      filled += bytes;
    }
    return files;
  }

  /// Assembles and writes one file, so that only its tensors are in memory at a time.
  void write_file(const std::string& name, const std::vector<const Stored*>& list) {
    NamedTensors tensors;
    for (const Stored* stored : list) {
      std::vector<Tensor> parts;
      for (const WeightSlot& weight : stored->weights) {
        const Tensor& part = weights_.at(weight.name);
        parts.push_back(options_.dtype && part.dtype() != *options_.dtype ? part.to(*options_.dtype) : part);
        LAMINA_CHECK(parts.back().dtype() == parts.front().dtype(), "'", weight.name, "' holds ", part.dtype(), ", '",
                     stored->weights.front().name, "' ", parts.front().dtype(),
                     "; this family stores them as one tensor: choose one type (--dtype)");
      }
      tensors.push_back({stored->name, pack(*stored, parts)});
    }
    if (done_ == 0) tensors.insert(tensors.end(), constants_.begin(), constants_.end());
    const int64_t before = done_;
    write_safetensors(folder_.path(name), tensors, {{"format", "pt"}, {kWrittenBy, "lamina"}},
                      [&](int64_t done, int64_t /*total*/) {
                        done_ = before + done;
                        if (options_.progress) options_.progress(done_, total_);
                      });
  }

  const HfWriteOptions& options_;
  const CheckpointFolder& folder_;
  std::map<std::string, Tensor> weights_;
  NamedTensors constants_;
  int64_t total_ = 0;
  int64_t done_ = 0;
};

}  // namespace
}  // namespace hf

std::string write_hf(const std::string& folder, const Checkpoint& checkpoint, const HfWriteOptions& options) {
  LAMINA_CHECK(!options.dtype || is_floating(*options.dtype), "weights cannot be written as ", *options.dtype,
               "; use f32, bf16, f16 or f64");
  LAMINA_CHECK(options.max_shard_bytes > 0, "files of at most ", options.max_shard_bytes,
               " bytes; give a positive size");
  check_weights(checkpoint, folder);
  const hf::Family& family = hf::choose(checkpoint, options.family);
  CheckpointFolder target(folder, options.replace);
  const DType dtype = options.dtype.value_or(checkpoint.tensors.front().tensor.dtype());
  write_text(target.path("config.json"), hf::write_config(family, checkpoint.spec, checkpoint.tokens, dtype));
  hf::Writer(checkpoint, options, target)
      .write(hf::stored_tensors(hf::written_names(family, checkpoint.spec), checkpoint.spec),
             hf::named_constants(family, checkpoint.spec));
  if (options.add_files) options.add_files(target.path(""));
  target.publish();
  return std::string(family.model_type);
}

}  // namespace lamina::io
