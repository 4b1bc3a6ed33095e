#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "lamina/base/files.h"
#include "lamina/search/index.h"
#include "lamina/search/index_update.h"
#include "lamina/search/state_store.h"
#include "lamina/search/words.h"

namespace lamina::search {
namespace {

namespace fs = std::filesystem;

class IndexFolder : public ::testing::Test {
 protected:
  IndexFolder() : folder_(fs::temp_directory_path() / ("index_test" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
    index_ = (folder_ / "index").string();
  }
  ~IndexFolder() override { fs::remove_all(folder_); }

  /// Vectors from counts of letters: enough to have neighbours.
  static std::vector<float> embed(std::span<const std::string> texts) {
    std::vector<float> vectors(texts.size() * 26);
    for (size_t i = 0; i < texts.size(); ++i) {
      for (const char c : texts[i]) {
        if (c >= 'a' && c <= 'z') vectors[i * 26 + static_cast<size_t>(c - 'a')] += 1;
      }
    }
    normalize_rows(vectors, 26);
    return vectors;
  }
  static IndexSettings settings(bool vectors) {
    IndexSettings settings;
    settings.chunks = {8, 2};
    if (vectors) {
      settings.vectors.emplace();
      settings.vectors->dim = 26;
      settings.vectors->model = "none";
      settings.vectors->graph_from = 30;
    }
    return settings;
  }
  void build(const std::map<std::string, std::string>& documents, bool vectors = true) {
    IndexUpdate update = IndexUpdate::create(index_, settings(vectors), true);
    add(update, documents);
    update.commit(threads_);
  }
  void add(IndexUpdate& update, const std::map<std::string, std::string>& documents) {
    update.set_embedder(embed);
    for (const auto& [name, text] : documents) update.add(name, text, threads_);
  }
  static std::map<std::string, std::string> content(const Index& index) {
    std::map<std::string, std::string> all;
    index.each(
        [&](std::string_view name, int64_t row) { all[std::string(name)] += std::string(index.text(row)) + "|"; });
    return all;
  }
  static std::map<std::string, std::string> documents(int first, int last) {
    std::map<std::string, std::string> all;
    for (int i = first; i < last; ++i) {
      std::string& text = all["d" + std::to_string(i)];
      for (int w = 0; w < 20; ++w)
        text += "word" + std::string(static_cast<size_t>(i * w % 7 + 1), static_cast<char>('a' + i % 26)) + " ";
    }
    return all;
  }

  fs::path folder_;
  std::string index_;
  Threads threads_{2};
};

TEST_F(IndexFolder, UpdatesEqualAFreshIndex) {
  build(documents(0, 40));
  {
    IndexUpdate update = IndexUpdate::open(index_);
    add(update, documents(40, 55));
    add(update, {{"d3", "zebra changed text"}});
    EXPECT_EQ(update.remove("d7"), 1);
    EXPECT_EQ(update.remove("nothing"), 0);
    EXPECT_EQ(update.add("d9", " \n", threads_), 0);  // replaced by a text without words
    update.commit(threads_);
  }
  std::map<std::string, std::string> all = documents(0, 55);
  all["d3"] = "zebra changed text";
  all.erase("d7");
  all.erase("d9");
  const std::string updated = index_;
  const Index after = Index::open(index_);
  EXPECT_GT(after.deleted_count(), 0);
  index_ += ".fresh";
  build(all);
  const Index fresh = Index::open(index_);
  EXPECT_EQ(content(after), content(fresh));
  EXPECT_EQ(after.passage_count(), fresh.passage_count());
  EXPECT_EQ(after.document_count(), 53);
  for (const std::string text : {"zebra", "wordaa wordbbb", "worde text"}) {
    for (const RankBy by : {RankBy::bm25, RankBy::dense, RankBy::both}) {
      SearchOptions options;
      options.by = by;
      options.exact = true;
      const Query query{text, embed(std::vector<std::string>{text})};
      const auto a = after.search(query, options, threads_);
      const auto b = fresh.search(query, options, threads_);
      ASSERT_EQ(a.size(), b.size()) << text;
      for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i].score, b[i].score, 1e-12) << text << " rank " << i;
      if (text == "zebra" && by != RankBy::dense) {
        EXPECT_EQ(after.document(a[0].row), "d3");
      }
      options.exact = false;
      EXPECT_FALSE(after.search(query, options, threads_).empty());
    }
  }
  IndexUpdate::open(updated).commit(threads_, true);
  EXPECT_EQ(content(Index::open(updated)), content(fresh));
  EXPECT_EQ(Index::open(updated).deleted_count(), 0);
}

TEST_F(IndexFolder, SegmentsStayFew) {
  build(documents(0, 1), false);
  for (int i = 1; i < 40; ++i) {
    IndexUpdate update = IndexUpdate::open(index_);
    add(update, documents(i, i + 1));
    update.commit(threads_);
  }
  const Index index = Index::open(index_);
  EXPECT_EQ(index.document_count(), 40);
  EXPECT_LE(index.segments().size(), 6U);
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(index_)) ++files;
  EXPECT_EQ(files, index.segments().size() + 2);  // index.json and lock
}

TEST_F(IndexFolder, RefusesASecondWriterAndRemovesLeftovers) {
  build(documents(0, 5), false);
  {
    const IndexUpdate update = IndexUpdate::open(index_);
    EXPECT_THROW(IndexUpdate::open(index_), Error);
  }
  write_text(index_ + "/segment-99.lsx", "left by a killed process");
  write_text(index_ + "/index.json.1-0.tmp", "left by a killed process");
  (void)Index::open(index_);  // readers do not care
  (void)IndexUpdate::open(index_);
  EXPECT_FALSE(file_exists(index_ + "/segment-99.lsx"));
  EXPECT_FALSE(file_exists(index_ + "/index.json.1-0.tmp"));
  EXPECT_EQ(Index::open(index_).document_count(), 5);
}

TEST_F(IndexFolder, WrongUsesAreErrors) {
  IndexSettings none = settings(false);
  none.bm25 = false;
  EXPECT_THROW(IndexUpdate::create(index_, none, false), Error);
  EXPECT_THROW(Index::open(index_), Error);
  EXPECT_THROW(IndexUpdate::open(index_), Error);
  build(documents(0, 3), false);
  EXPECT_THROW(IndexUpdate::create(index_, settings(false), false), Error);
  const Index index = Index::open(index_);
  SearchOptions options;
  options.by = RankBy::dense;
  EXPECT_THROW(index.search({"a", {}}, options, threads_), Error);
  EXPECT_THROW(index.text(1000), Error);
  IndexUpdate update = IndexUpdate::open(index_);
  update.add("a", "some text", threads_);
  EXPECT_THROW(update.add("a", "some text", threads_), Error);
  EXPECT_EQ(update.add("b", "...", threads_), 0);
}

/// Every damaged file gives an Error, or the same content as before.
TEST_F(IndexFolder, DamagedFilesAreErrors) {
  build(documents(0, 40));
  const auto before = content(Index::open(index_));
  std::mt19937 random(5);
  for (const auto& entry : fs::directory_iterator(index_)) {
    const std::string path = entry.path().string();
    if (entry.path().filename() == "lock") continue;
    std::ifstream in(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    int errors = 0;
    for (int round = 0; round < 120; ++round) {
      std::string damaged = bytes;
      if (round % 10 == 0) {
        damaged.resize(random() % damaged.size());
      } else {
        damaged[random() % (round % 2 == 0 ? std::min<size_t>(damaged.size(), 1400) : damaged.size())] ^=
            static_cast<char>(1U << (random() % 8));
      }
      std::ofstream(path, std::ios::binary) << damaged;
      try {
        const Index index = Index::open(index_);
        (void)index.search({"wordaa", embed(std::vector<std::string>{"wordaa"})}, {}, threads_);
      } catch (const Error&) {
        ++errors;
      }
    }
    if (path.ends_with(".lsx")) {
      EXPECT_GE(errors, 110) << path;  // bytes between sections are not checked
    }
    std::ofstream(path, std::ios::binary) << bytes;
  }
  EXPECT_EQ(content(Index::open(index_)), before);
}

TEST_F(IndexFolder, StateStoreFindsItsKeys) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  std::vector<float> states(300 * 16);
  for (float& value : states) value = normal(random);
  std::vector<int64_t> tokens(300);
  for (size_t i = 0; i < 300; ++i) tokens[i] = static_cast<int64_t>(i % 50);
  for (const DType dtype : {DType::f32, DType::f16, DType::u8}) {
    StateStoreBuilder builder(dtype, 16, 50);
    builder.add(states, tokens);
    const std::string path = (folder_ / "store.knn").string();
    builder.write(path, "model", true, {8, 50, 1}, threads_);
    const auto store = StateStore::open(path);
    EXPECT_EQ(store->count(), 300);
    EXPECT_GT(store->scale(), 0);
    EXPECT_EQ(store->model(), "model");
    for (const int64_t beam : {0, 60}) {
      const auto found = store->search(std::span(states).subspan(0, 160), 1, beam, threads_);
      for (size_t i = 0; i < 10; ++i) {
        EXPECT_EQ(found[i][0].row, static_cast<int64_t>(i));
        EXPECT_EQ(store->token(found[i][0].row), i % 50);
      }
    }
    EXPECT_THROW(Index::open(path), Error);
  }
  StateStoreBuilder builder(DType::f32, 16, 50);
  EXPECT_THROW(builder.write((folder_ / "empty").string(), "", false, {}, threads_), Error);
  EXPECT_THROW(builder.add(std::span(states).first(16), std::vector<int64_t>{50}), Error);
}

}  // namespace
}  // namespace lamina::search
