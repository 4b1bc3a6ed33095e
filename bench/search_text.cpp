// BM25 on 10⁵ passages of 60 words from a Zipf distribution over 50,000 words (exponent 1). Queries are four words of a
// random passage each, so common words occur in them as often as in text. The reference is the goal of 10⁴ queries/s.
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "lamina/base/error.h"
#include "lamina/search/bm25.h"
#include "support/suite.h"

namespace lamina::bench {
namespace {

constexpr int64_t kPassages = 100000;
constexpr int64_t kWords = 60;
constexpr int64_t kQueries = 1000;
constexpr double kVocabulary = 50000;

std::string zipf_word(std::mt19937& random) {
  const double uniform = static_cast<double>(random()) / 4294967296.0;
  return "w" + std::to_string(static_cast<int64_t>(std::pow(kVocabulary, uniform)));
}

}  // namespace

LAMINA_BENCH_SUITE(search_text) {
  std::mt19937 random(1);
  search::Bm25Builder builder;
  std::vector<std::string> queries;
  for (int64_t i = 0; i < kPassages; ++i) {
    std::string passage;
    std::string query;
    for (int64_t w = 0; w < kWords; ++w) {
      const std::string word = zipf_word(random);
      passage += word + " ";
      if (w % 15 == 7) query += word + " ";
    }
    builder.add(passage);
    if (i % (kPassages / kQueries) == 0) queries.push_back(query);
  }
  const auto path = std::filesystem::temp_directory_path() / str("lamina-bench-", ::getpid(), ".lsx");
  search::SectionWriter out(path.string(), "BENC");
  builder.write(out);
  out.publish();
  const search::SectionFile file = search::SectionFile::open(path.string(), "BENC");
  std::filesystem::remove(path);
  const search::Bm25View view(file);
  const search::Bm25Search search(std::vector<search::Bm25Segment>{{&view, {}, {}}});
  const double time = context.seconds([&] { search.search(queries, 10, context.device().threads()); });
  context.add({"bm25, 1e5 passages, 4 words, best 10", kQueries / time, 1e4, "query/s", "goal, all threads", 1.0});
}

}  // namespace lamina::bench
