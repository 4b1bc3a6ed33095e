#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "lamina/base/files.h"
#include "lamina/search/bm25.h"
#include "lamina/search/chunks.h"
#include "lamina/search/index.h"
#include "lamina/search/words.h"

namespace lamina::search {
namespace {

using Words = std::vector<std::string>;

TEST(Words, AreFoldedAndSeparated) {
  EXPECT_EQ(words_of("Don't PANIC, 42 times!"), (Words{"don", "t", "panic", "42", "times"}));
  EXPECT_EQ(words_of("ÉCOLE straße ＡＢＣ"), (Words{"école", "strasse", "abc"}));
  EXPECT_EQ(words_of("e\xCC\x81t\xC3\xA9"), (Words{"été"}));  // composed and decomposed forms are one word
  EXPECT_EQ(words_of("深度学习GPU模型"), (Words{"深", "度", "学", "习", "gpu", "模", "型"}));
  EXPECT_EQ(words_of("a\xFF\xFE"
                     "b\x80"),
            (Words{"a", "b"}));
  EXPECT_EQ(words_of(""), Words());
  EXPECT_EQ(words_of(std::string(1000, 'x'))[0].size(), kMaxWordBytes);
  std::string accents;
  for (int i = 0; i < 500; ++i) accents += "É";
  EXPECT_LE(words_of(accents)[0].size(), kMaxWordBytes);
}

TEST(Chunks, CutAtParagraphsOrOverlap) {
  std::string text = "one two three.\n\nFour five six seven eight nine ten.";
  std::vector<Chunk> chunks = chunks_of(text, {5, 1});
  std::vector<std::string> passages;
  for (const Chunk& chunk : chunks) passages.push_back(text.substr(chunk.begin, chunk.end - chunk.begin));
  EXPECT_EQ(passages, (Words{"one two three.", "Four five six seven eight", "eight nine ten."}));
  EXPECT_TRUE(chunks_of(" \n -- \n", {5, 1}).empty());
  EXPECT_THROW(chunks_of(text, {5, 5}), Error);
  EXPECT_THROW(chunks_of(text, {0, 0}), Error);
  // Every word is in some passage, and no passage has too many.
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::string long_text;
    for (int i = 0; i < 200; ++i) long_text += "w" + std::to_string(i) + (random() % 9 == 0 ? "\n\n" : " ");
    std::set<std::string> seen;
    for (const Chunk& chunk : chunks_of(long_text, {static_cast<int64_t>(random() % 30 + 3), 2})) {
      for (const std::string& word : words_of(long_text.substr(chunk.begin, chunk.end - chunk.begin)))
        seen.insert(word);
    }
    EXPECT_EQ(seen.size(), 200U);
  }
}

TEST(Chunks, SnippetsShowTheQuery) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "filler\n";
  text += "the red  fox jumps ";
  for (int i = 0; i < 100; ++i) text += "other ";
  const std::string snippet = snippet_of(text, "Fox red", 10);
  EXPECT_NE(snippet.find("red fox"), std::string::npos) << snippet;
  EXPECT_TRUE(snippet.starts_with("…") && snippet.ends_with("…")) << snippet;
  EXPECT_EQ(snippet_of("short text", "none", 10), "short text");
  EXPECT_EQ(snippet_of("", "none", 10), "");
}

/// The formula over plain lists of words.
std::vector<Neighbor> plain_bm25(const std::vector<Words>& passages, const std::vector<bool>& deleted,
                                 const Words& query, size_t k, double k1, double b) {
  double n = 0;
  double total = 0;
  for (size_t i = 0; i < passages.size(); ++i) {
    if (deleted[i]) continue;
    n += 1;
    total += static_cast<double>(passages[i].size());
  }
  std::vector<double> dfs;
  for (const std::string& word : query) {
    dfs.push_back(0);
    for (size_t j = 0; j < passages.size(); ++j) {
      dfs.back() += !deleted[j] && std::count(passages[j].begin(), passages[j].end(), word) > 0 ? 1 : 0;
    }
  }
  std::vector<Neighbor> all;
  for (size_t i = 0; i < passages.size(); ++i) {
    if (deleted[i]) continue;
    double score = 0;
    bool any = false;
    for (size_t w = 0; w < query.size(); ++w) {
      const auto tf = static_cast<double>(std::count(passages[i].begin(), passages[i].end(), query[w]));
      const double norm = k1 * (1 - b + b * static_cast<double>(passages[i].size()) / (total / n));
      if (tf > 0) score += std::log(1 + (n - dfs[w] + 0.5) / (dfs[w] + 0.5)) * tf * (k1 + 1) / (tf + norm);
      any = any || tf > 0;
    }
    if (any) all.push_back({static_cast<int64_t>(i), score});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Neighbor& x, const Neighbor& y) { return x.score > y.score + 1e-12; });
  if (all.size() > k) all.resize(k);
  return all;
}

struct BmCorpus {
  std::vector<Words> passages;
  std::vector<bool> deleted;
  std::vector<SectionFile> files;
  std::vector<Bm25View> views;
  std::vector<Bm25Segment> segments;
};

/// Passages of Zipf-distributed words, in segments of different sizes, some passages deleted.
BmCorpus make_corpus(const std::string& folder, bool with_deleted) {
  BmCorpus corpus;
  std::mt19937 random(3);
  const std::vector<int> sizes{700, 1, 150};
  for (size_t s = 0; s < sizes.size(); ++s) {
    Bm25Builder builder;
    Bm25Segment segment;
    for (int i = 0; i < sizes[s]; ++i) {
      Words words;
      std::string text;
      const size_t length = random() % 40 + 1;
      for (size_t w = 0; w < length; ++w) {
        const double uniform = static_cast<double>(random()) / 4294967296.0;
        words.push_back("w" + std::to_string(static_cast<int>(std::pow(300.0, uniform))));
        text += words.back() + " ";
      }
      builder.add(text);
      const bool gone = with_deleted && random() % 4 == 0;
      segment.deleted.push_back(gone);
      if (gone) {
        for (const std::string& word : std::set<std::string>(words.begin(), words.end())) ++segment.deleted_df[word];
      }
      corpus.passages.push_back(words);
      corpus.deleted.push_back(gone);
    }
    const std::string path = folder + "/" + std::to_string(s) + ".lsx";
    SectionWriter out(path, "TEST");
    builder.write(out);
    out.publish();
    corpus.files.push_back(SectionFile::open(path, "TEST"));
    if (!with_deleted) segment.deleted.clear();
    corpus.segments.push_back(segment);
  }
  for (const SectionFile& file : corpus.files) corpus.views.emplace_back(file);
  for (size_t s = 0; s < sizes.size(); ++s) corpus.segments[s].view = &corpus.views[s];
  return corpus;
}

TEST(Bm25, EqualsThePlainFormula) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("bm25_test" + std::to_string(::getpid()))).string();
  std::filesystem::create_directory(folder);
  std::mt19937 random(4);
  for (const bool with_deleted : {false, true}) {
    const BmCorpus corpus = make_corpus(folder, with_deleted);
    for (const auto& [k1, b] : std::vector<std::pair<double, double>>{{1.2, 0.75}, {0.0, 0.0}, {2.0, 1.0}}) {
      const Bm25Search search(corpus.segments, {k1, b});
      for (int round = 0; round < 25; ++round) {
        std::string query;
        Words words;
        for (size_t i = 0; i < random() % 5 + 1; ++i) {
          words.push_back("w" + std::to_string(random() % (round % 2 == 0 ? 10 : 310)));
          query += words.back() + " ";
        }
        const auto expected = plain_bm25(corpus.passages, corpus.deleted, words, 10, k1, b);
        const auto found = search.search(query, 10);
        ASSERT_EQ(found.size(), expected.size()) << query;
        for (size_t i = 0; i < found.size(); ++i) {
          EXPECT_NEAR(found[i].score, expected[i].score, 1e-9) << query << " rank " << i;
          // Sums in another order may swap passages of equal score; the last may have equals beyond the list.
          const bool tied = (i > 0 && std::abs(expected[i].score - expected[i - 1].score) < 1e-9) ||
                            i + 1 == expected.size() || std::abs(expected[i].score - expected[i + 1].score) < 1e-9;
          if (!tied) {
            EXPECT_EQ(found[i].row, expected[i].row) << query << " rank " << i;
          }
        }
      }
    }
    const Bm25Search search(corpus.segments);
    const Words queries{"w1 w5", "w2", "none"};
    EXPECT_EQ(search.search(queries, 5, Threads(1)), search.search(queries, 5, Threads(3)));
    EXPECT_TRUE(search.search("none", 5).empty());
    EXPECT_TRUE(search.search("", 5).empty());
    EXPECT_THROW(search.search("w1", 0), Error);
  }
  EXPECT_THROW(Bm25Search({}, {-1, 0.5}), Error);
  std::filesystem::remove_all(folder);
}

TEST(RankFusion, AddsReciprocalRanks) {
  const std::vector<Hit> hits = fuse_ranks({{7, 9.0}, {3, 8.0}}, {{3, 0.9}, {5, 0.8}}, 10);
  ASSERT_EQ(hits.size(), 3U);
  EXPECT_EQ(hits[0].row, 3);
  EXPECT_DOUBLE_EQ(hits[0].score, 1 / 62.0 + 1 / 61.0);
  EXPECT_EQ(hits[1].row, 7);
  EXPECT_EQ(hits[2].row, 5);
  EXPECT_EQ(hits[2].dense_rank, 2);
  EXPECT_EQ(hits[2].bm25_rank, 0);
}

}  // namespace
}  // namespace lamina::search
