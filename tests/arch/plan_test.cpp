#include "lamina/arch/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lamina/arch/edit.h"
#include "lamina/arch/layers.h"
#include "lamina/arch/picture.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/arch/schema.h"
#include "lamina/arch/weights.h"

namespace lamina::arch {
namespace {

ArchSpec preset(const std::string& name) { return resolve(load_preset(name), name); }

TEST(Count, theTableOfASmallModel) {
  // Width 256, 4 layers, 8 query heads, 4 KV heads, vocabulary of 8192.
  const ArchSpec spec = resolve(with_overrides(
      load_preset("llama-7b"),
      {"vocab_size=8192", "d_model=256", "context=256", "layers[0].repeat=4", "layers[0].pattern[0].mixer.n_heads=8",
       "layers[0].pattern[0].mixer.n_kv_heads=4", "layers[0].pattern[0].ffn.d_ff=688"}));
  const ParameterCount count = count_parameters(spec);
  const auto each = [&count](const std::string& component) {
    for (const CountRow& row : count.rows) {
      if (row.component == component) return row.each;
    }
    return int64_t{-1};
  };
  EXPECT_EQ(each("embedding"), 2097152);
  EXPECT_EQ(each("norms"), 512);
  EXPECT_EQ(each("q"), 65536);
  EXPECT_EQ(each("k"), 32768);
  EXPECT_EQ(each("v"), 32768);
  EXPECT_EQ(each("o"), 65536);
  EXPECT_EQ(each("ffn gate (w1)"), 176128);
  EXPECT_EQ(each("final norm"), 256);
  EXPECT_EQ(each("head"), 2097152);
}

TEST(Count, rowsAddUpAndExpertsAreMetInPart) {
  for (const std::string& name : preset_names()) {
    const ParameterCount count = count_parameters(preset(name));
    int64_t total = 0;
    for (const CountRow& row : count.rows) {
      EXPECT_EQ(row.total, row.each * row.layers) << name;
      EXPECT_LE(row.active, row.total) << name;
      total += row.total;
    }
    EXPECT_EQ(total, count.total) << name;
  }
  EXPECT_EQ(count_parameters(preset("mixtral-8x7b")).active, 12879925248);
  EXPECT_EQ(count_parameters(preset("gpt2")).active, 124439808);
}

TEST(Count, weightsHaveDistinctNames) {
  for (const std::string& name : preset_names()) {
    const ArchSpec spec = preset(name);
    for (const WrittenBlock& written : written_blocks(spec)) {
      std::vector<std::string> names;
      for (const Weight& weight : block_weights(spec, *written.block)) names.push_back(weight.name);
      std::sort(names.begin(), names.end());
      EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end()) << name;
    }
  }
}

TEST(Cost, productsAreTwiceTheMatrices) {
  // All of GPT-2's parameters except norms, biases and positions are in matrix products; the tied table is the head.
  const ArchSpec spec = preset("gpt2");
  const int64_t in_block = 12 * 768 * 768;
  EXPECT_DOUBLE_EQ(flops_per_token(spec, 1024).products, 2.0 * (12 * in_block + 50257 * 768));
  EXPECT_DOUBLE_EQ(flops_per_token(spec, 1024).mixing, 12 * 2.0 * 2 * 768 * 512.5);
  EXPECT_DOUBLE_EQ(flops_per_token(spec, 1024).training(), 3 * flops_per_token(spec, 1024).forward());
}

/// Number of visible (query, key) pairs, counted one by one.
template <class F>
double counted(int64_t length, const F& sees) {
  double sum = 0;
  for (int64_t i = 0; i < length; ++i) {
    for (int64_t j = 0; j <= i; ++j) sum += sees(i, j) ? 1 : 0;
  }
  return sum / static_cast<double>(length);
}

TEST(Cost, averageKeysEqualTheCount) {
  for (const int64_t n : {1, 2, 7, 64, 100}) {
    EXPECT_DOUBLE_EQ(average_keys(FullPattern{}, n), counted(n, [](int64_t, int64_t) { return true; }));
    EXPECT_LE(average_keys(BigBirdPattern{}, n), average_keys(FullPattern{}, n));
    for (const int64_t w : {1, 3, 64, 1000}) {
      EXPECT_DOUBLE_EQ(average_keys(WindowPattern{w}, n), counted(n, [=](int64_t i, int64_t j) { return i - j < w; }));
      EXPECT_DOUBLE_EQ(average_keys(ChunkPattern{w}, n),
                       counted(n, [=](int64_t i, int64_t j) { return i / w == j / w; }));
      EXPECT_DOUBLE_EQ(average_keys(LongformerPattern{w, 4}, n),
                       counted(n, [=](int64_t i, int64_t j) { return i - j < w || j < 4; }));
      for (const int64_t s : {1, 2, 5, 64}) {
        EXPECT_DOUBLE_EQ(average_keys(StridedPattern{w, s}, n),
                         counted(n, [=](int64_t i, int64_t j) { return i - j < w || (i - j) % s == 0; }));
      }
    }
  }
}

double cache_numbers(const std::string& name, int64_t length) {
  double sum = 0;
  for (const CacheRow& row : cache_rows(preset(name))) sum += row.at(length);
  return sum;
}

TEST(Cost, averageKeysWithoutACausalMask) {
  const auto counted_both = [](int64_t n, int64_t w) {
    int64_t pairs = 0;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) pairs += std::abs(i - j) < w ? 1 : 0;
    }
    return static_cast<double>(pairs) / static_cast<double>(n);
  };
  for (const int64_t n : {1, 7, 64}) {
    EXPECT_DOUBLE_EQ(average_keys(FullPattern{}, n, false), static_cast<double>(n));
    for (const int64_t w : {1, 3, 64}) EXPECT_DOUBLE_EQ(average_keys(WindowPattern{w}, n, false), counted_both(n, w));
  }
}

TEST(Cost, encodersKeepNothingAndDecodersKeepTheirSource) {
  EXPECT_TRUE(cache_rows(preset("bert-tiny")).empty());
  const std::vector<CacheRow> rows = cache_rows(preset("t5-encoder-decoder-tiny"));
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at(10), 2 * 10 * 2 * 32.0);  // two layers, keys and values of 4 heads of 8
  EXPECT_EQ(rows[1].kind, "cross, of the source");
  EXPECT_EQ(rows[1].at(10), rows[0].at(10));
}

TEST(Cost, cacheByKind) {
  EXPECT_DOUBLE_EQ(cache_numbers("llama-2-7b", 4096), 32.0 * 2 * 4096 * 4096);
  EXPECT_DOUBLE_EQ(cache_numbers("llama-3-8b", 4096), 32.0 * 2 * 1024 * 4096) << "a quarter with 8 of 32 heads";
  EXPECT_DOUBLE_EQ(cache_numbers("falcon-7b", 100), 32.0 * 2 * 64 * 100);
  EXPECT_DOUBLE_EQ(cache_numbers("mistral-7b", 100000), 32.0 * 2 * 1024 * 4096) << "a window caps it";
  EXPECT_DOUBLE_EQ(cache_numbers("deepseek-v3", 1000), 61.0 * 576 * 1000) << "the latent and the shared rotated key";
  EXPECT_DOUBLE_EQ(cache_numbers("mamba-130m", 10), cache_numbers("mamba-130m", 100000));
  EXPECT_DOUBLE_EQ(cache_numbers("mamba-130m", 1), 24.0 * 1536 * (16 + 3));
}

TEST(Advice, looksAtWhatIsUnusual) {
  const auto verdict = [](const ArchSpec& spec, const std::string& subject) {
    for (const Advice& item : advise(spec)) {
      if (item.subject == subject) return item.verdict == Advice::Verdict::usual ? "usual" : "look";
    }
    return "none";
  };
  EXPECT_STREQ(verdict(preset("llama-2-7b"), "feed-forward ratio"), "usual");
  EXPECT_STREQ(verdict(preset("llama-2-7b"), "aspect ratio"), "usual");
  EXPECT_STREQ(verdict(preset("gpt2"), "vocabulary rounding"), "look");
  EXPECT_STREQ(verdict(preset("gpt2"), "position"), "look");
  EXPECT_STREQ(verdict(preset("transformer-base"), "norm placement"), "look");
  EXPECT_STREQ(verdict(preset("mamba-130m"), "head size"), "none");
  const ArchSpec wide = resolve(with_overrides(load_preset("gpt2"), {"layers[0].pattern[0].ffn.d_ff=49152"}));
  EXPECT_STREQ(verdict(wide, "feed-forward ratio"), "look");
}

TEST(Plan, textAndJsonForEveryPreset) {
  for (const std::string& name : preset_names()) {
    const Plan plan = make_plan(name, preset(name), {});
    const std::string text = to_text(plan);
    EXPECT_NE(text.find(with_commas(plan.parameters.total)), std::string::npos) << name;
    const auto json = nlohmann::json::parse(to_json_text(plan));
    EXPECT_EQ(json["parameters"]["total"].get<int64_t>(), plan.parameters.total) << name;
    EXPECT_EQ(read_spec(json["architecture"].dump(), name), plan.spec);
  }
  EXPECT_THROW(make_plan("gpt2", preset("gpt2"), {.length = 2048}), Error) << "beyond the learned positions";
  EXPECT_THROW(make_plan("gpt2", preset("gpt2"), {.batch = -1}), Error);
}

TEST(Plan, numbersForPeople) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(-1000), "-1,000");
  EXPECT_EQ(with_commas(6738415616), "6,738,415,616");
  EXPECT_EQ(short_number(1.5e9), "1.5 G");
  EXPECT_EQ(short_bytes(512), "512 B");
}

TEST(Picture, isWellFormedForEveryPreset) {
  for (const std::string& name : preset_names()) {
    const std::string svg = draw(preset(name), name + " <&> \x01");
    EXPECT_EQ(svg.compare(0, 4, "<svg"), 0);
    EXPECT_EQ(std::count(svg.begin(), svg.end(), '<'), std::count(svg.begin(), svg.end(), '>'));
    EXPECT_EQ(svg.find("<&"), std::string::npos);
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
    // Without a viewBox a smaller picture is cut off instead of scaled.
    EXPECT_NE(svg.find(" viewBox=\""), std::string::npos);
    EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
  }
}

TEST(Picture, partsAreTheModelAndEachDifferentBlock) {
  const std::vector<Picture> parts = draw_parts(preset("gemma-3-tiny"));  // local and global attention
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].name, "model");
  EXPECT_NE(parts[0].svg.find(">logits<"), std::string::npos);
  EXPECT_EQ(parts[0].svg.find(">block A"), std::string::npos);
  EXPECT_EQ(parts[2].name, "block B");
  EXPECT_NE(parts[2].svg.find(">block B"), std::string::npos);
  for (const Picture& part : parts) EXPECT_NE(part.svg.find(" viewBox=\""), std::string::npos);
}

TEST(Picture, inCharactersHasTheSameBoxes) {
  for (const std::string& name : preset_names()) {
    const std::string text = draw_text(preset(name), name);
    EXPECT_EQ(text.find(name + "\n"), 0U);
    EXPECT_NE(text.find("block A: "), std::string::npos) << text;
    EXPECT_NE(text.find("tokens"), std::string::npos) << text;
    EXPECT_NE(text.find("▲"), std::string::npos) << text;
  }
  const std::string text = draw_text(preset("llama-tiny"), "llama-tiny");
  for (const char* part :
       {"│             gated feed-forward              │", "RMS norm", "⊕", "block A: serial, pre"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  // Two sublayers, two residual additions, each reached from the left and from below.
  size_t additions = 0;
  for (size_t at = text.find("▶⊕"); at != std::string::npos; at = text.find("▶⊕", at + 1)) ++additions;
  EXPECT_EQ(additions, 2U) << text;
}

TEST(Schema, theDocumentationIsCurrent) {
  std::ifstream file(std::string(LAMINA_SOURCE_DIR) + "/docs/reference/architecture-file.md");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == schema_markdown()) << "run: lamina presets schema > docs/reference/architecture-file.md";
}

void expect_documented(const SchemaNode& node, const std::string& path) {
  for (const SchemaOption& option : node.options) {
    for (const SchemaField& field : option.fields) {
      EXPECT_FALSE(field.doc.empty()) << path << "." << field.key;
      EXPECT_EQ(field.doc.find('|'), std::string::npos) << "would break the table: " << field.key;
      expect_documented(field.node, path + "." + field.key);
    }
  }
  for (const SchemaNode& element : node.element) expect_documented(element, path + "[]");
}
TEST(Schema, everyFieldIsDocumented) { expect_documented(schema(), ""); }

}  // namespace
}  // namespace lamina::arch
