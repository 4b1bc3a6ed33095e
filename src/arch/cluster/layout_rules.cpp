#include <algorithm>
#include <cmath>

#include "lamina/arch/cluster/step.h"
#include "lamina/arch/tensor_shards.h"
#include "lamina/arch/value_range.h"

namespace lamina::arch {
namespace {

bool divides(int64_t divisor, double number) { return std::fmod(number, static_cast<double>(divisor)) == 0; }

/// Rules about one kind of layer. Calls note(path, message, hint) for each violation. `message` is a function that
/// returns the text, so that it costs nothing if nobody reads it.
template <class Note>
void check_layer(const LayerShape& layer, const Layout& layout, const Note& note) {
  if (layer.heads > 0 && !divides(layout.tp, layer.heads)) {
    note(
        "tp", [&] { return str(layout.tp, " does not divide ", layer.heads, " heads"); }, "use a divisor");
  }
  const auto tp = static_cast<double>(layout.tp);
  if (layer.heads > 0 && !divides(layout.tp, layer.kv_heads) && std::fmod(tp, layer.kv_heads) != 0) {
    note(
        "tp",
        [&] { return str(layout.tp, " neither divides ", layer.kv_heads, " key heads nor is a multiple of them"); },
        "use a divisor or a multiple");
  }
  for (const ProductShape& product : layer.products) {
    const bool by_in = product.split == ProductShape::Split::in;
    if (product.split == ProductShape::Split::none || divides(layout.tp, by_in ? product.in : product.out)) continue;
    note(
        "tp", [&] { return str(layout.tp, " does not divide a width of ", by_in ? product.in : product.out); },
        "use a divisor, or change the width");
    break;
  }
  if (layout.ep > 1 && layer.experts > 0 && layer.experts % layout.ep != 0) {
    note(
        "ep", [&] { return str(layout.ep, " does not divide ", layer.experts, " experts"); }, "use a divisor");
  }
}

template <class Note>
void check_batch(const TrainingSetup& setup, const Layout& layout, const Note& note) {
  if (setup.batch % (layout.dp * layout.micro_batch) != 0) {
    note(
        "micro_batch",
        [&] {
          return str("batch ", setup.batch, " is not a multiple of dp · micro_batch = ", layout.dp, " · ",
                     layout.micro_batch);
        },
        "change the batch, dp or micro_batch");
  } else if (layout.interleave > 1 && setup.batch / (layout.dp * layout.micro_batch) % layout.pp != 0) {
    note(
        "interleave",
        [&] {
          return str(setup.batch / (layout.dp * layout.micro_batch),
                     " micro-batches are not a multiple of pp = ", layout.pp);
        },
        "the interleaved schedule works in groups of pp micro-batches");
  }
  // Zigzag division: two pieces per device balance a causal mask.
  const int64_t pieces = layout.cp > 1 ? 2 * layout.cp : 1;
  if (setup.length % pieces != 0) {
    note(
        "cp", [&] { return str("length ", setup.length, " is not a multiple of 2 · cp = ", pieces); },
        "use a divisor of half the length");
  }
  if (layout.cp > 1 && setup.attention == AttentionKernel::stored) {
    note(
        "cp", [&] { return str(layout.cp, " with stored attention scores"); }, "set training.attention=fused");
  }
}

template <class Note>
void check_sizes(const ModelShape& model, const Layout& layout, int64_t devices, const Note& note) {
  if (layout.devices() != devices) {
    note(
        "",
        [&] {
          return str("dp ", layout.dp, " · tp ", layout.tp, " · pp ", layout.pp, " · cp ", layout.cp, " = ",
                     layout.devices(), " devices, but ", devices, " are given");
        },
        "change a size or --gpus");
  }
  const auto layers = static_cast<int64_t>(model.layers.size());
  if (layout.pp * layout.interleave > (layout.interleave > 1 ? layers + 2 : layers)) {
    note(
        "pp", [&] { return str(layout.pp, " stages of ", layout.interleave, " chunks for ", layers, " layers"); },
        "use fewer stages or chunks");
  }
  const bool interleaved = layout.schedule == PipelineSchedule::interleaved;
  if (interleaved != (layout.interleave > 1) || (interleaved && layout.pp == 1)) {
    note(
        "schedule",
        [&] {
          return str(interleaved ? "interleaved" : "1f1b", " with interleave ", layout.interleave, " and pp ",
                     layout.pp);
        },
        "interleaved needs pp > 1 and interleave > 1, 1f1b has interleave 1");
  }
  if (layout.dp % layout.ep != 0) {
    note(
        "ep", [&] { return str(layout.ep, " does not divide dp = ", layout.dp); }, "use a divisor");
  }
  if (layout.sequence && layout.tp == 1) {
    note(
        "sequence", [] { return std::string("sequence parallelism without tensor parallelism"); }, "set tp > 1");
  }
}

template <class Note>
void check_layout(const ModelShape& model, const TrainingSetup& setup, const Layout& layout, int64_t devices,
                  const Note& note) {
  check_sizes(model, layout, devices, note);
  check_batch(setup, layout, note);
  bool experts = false;
  for (const LayerShape& layer : model.kinds) {
    check_layer(layer, layout, note);
    experts = experts || layer.experts > 0;
  }
  if (layout.ep > 1 && !experts) {
    note(
        "ep", [&] { return str(layout.ep, " without experts"); }, "expert parallelism needs a mixture of experts");
  }
}

/// Problems for which training would refuse the layout, each reported under the field that causes it.
std::vector<Problem> undivided(const ArchSpec& spec, const Layout& layout) {
  std::vector<Problem> problems;
  const auto add = [&](const char* path, const std::vector<Problem>& found) {
    for (const Problem& p : found) problems.push_back({"layout", path, str(p.path, ": ", p.message), p.hint});
  };
  add("layout.tp", tensor_parallel_problems(spec, layout.tp));
  add("layout.cp", context_parallel_problems(spec, layout.cp));
  add("layout.ep", expert_parallel_problems(spec, layout.ep));
  return problems;
}

}  // namespace

bool can_divide(const ArchSpec& spec, const Layout& layout) { return undivided(spec, layout).empty(); }

std::vector<Problem> layout_problems(const ModelShape& model, const TrainingSetup& setup, const Layout& layout,
                                     int64_t devices) {
  std::vector<Problem> problems;
  const RangeCheck::Note outside = [&problems](const std::string& path, const std::string& message) {
    problems.push_back({"range", path, message, ""});
  };
  RangeCheck(outside).check(layout, Limits{}, "layout");
  RangeCheck(outside).check(setup, Limits{}, "training");
  if (!problems.empty()) return problems;
  check_layout(model, setup, layout, devices, [&](const char* path, const auto& message, const char* hint) {
    problems.push_back({"layout", *path == '\0' ? "layout" : str("layout.", path), message(), hint});
  });
  const size_t own = problems.size();
  for (Problem& problem : undivided(model.spec, layout)) {
    const auto same = [&](const Problem& known) { return known.path == problem.path; };
    if (std::none_of(problems.begin(), problems.begin() + static_cast<std::ptrdiff_t>(own), same)) {
      problems.push_back(std::move(problem));
    }
  }
  return problems;
}

bool is_possible(const ModelShape& model, const TrainingSetup& setup, const Layout& layout, int64_t devices) {
  bool possible = true;
  check_layout(model, setup, layout, devices,
               [&](const char* /*path*/, const auto& /*message*/, const char* /*hint*/) { possible = false; });
  return possible;
}

}  // namespace lamina::arch
