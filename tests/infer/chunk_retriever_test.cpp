// Neighbours of chunks: from an index to the tokens that a model with retrieval reads, and to generated text.
#include "lamina/infer/chunk_retriever.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "lamina/data/neighbours.h"
#include "lamina/data/token_writer.h"
#include "lamina/infer/evaluate.h"
#include "lamina/infer/generator.h"
#include "lamina/search/index_update.h"
#include "lamina/text/simple.h"
#include "nn/model_support.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace lamina::testing {
namespace {

using text::TokenId;

/// An index of three documents, and a byte tokenizer.
class ChunkRetrieverTest : public ::testing::Test {
 protected:
  ChunkRetrieverTest() {
    search::IndexSettings settings;
    settings.chunks = {.words = 4, .overlap = 0};
    search::IndexUpdate update = search::IndexUpdate::create(folder_ / "index", settings, false);
    update.add("owls", "owls hunt at night\n\nthey eat mice", threads_);
    update.add("bees", "bees sleep in winter", threads_);
    update.add("more", "owls sleep by day", threads_);
    update.commit(threads_);
    index_ = std::make_unique<search::Index>(search::Index::open(folder_ / "index"));
  }

  infer::ChunkRetriever retriever(int64_t neighbours, int64_t length) const {
    return {*index_,
            [this](const std::string& query, int64_t top) {
              return index_->search({query, {}}, {.top = top}, threads_);
            },
            *tokenizer_,
            {.chunk = 8, .neighbours = neighbours, .length = length, .padding_token = 7}};
  }
  std::string text_of(const std::vector<int64_t>& ids, int64_t begin, int64_t end) const {
    return tokenizer_->decode(std::vector<TokenId>(ids.begin() + begin, ids.begin() + end));
  }

  Threads threads_{1};
  TemporaryFolder folder_;
  std::unique_ptr<text::Tokenizer> tokenizer_ = text::byte_tokenizer();
  std::unique_ptr<search::Index> index_;
};

TEST_F(ChunkRetrieverTest, ANeighbourIsAPassageAndItsContinuation) {
  const std::vector<int64_t> ids = retriever(2, 34).find(tokenizer_->encode("owls hunt"));
  ASSERT_EQ(ids.size(), 68U);
  EXPECT_EQ(text_of(ids, 0, 33), "owls hunt at night\n\nthey eat mice");
  EXPECT_EQ(ids[33], 7);
  EXPECT_EQ(text_of(ids, 34, 51), "owls sleep by day");
  EXPECT_EQ(std::vector<int64_t>(ids.begin() + 51, ids.end()), std::vector<int64_t>(17, 7));
  EXPECT_EQ(text_of(retriever(1, 6).find(tokenizer_->encode("owls hunt")), 0, 6), "owls h") << "cut to the length";
}

TEST_F(ChunkRetrieverTest, ChunksWithoutResultsGetPadding) {
  EXPECT_EQ(retriever(2, 5).find(tokenizer_->encode("zebra")), std::vector<int64_t>(10, 7));
}

TEST_F(ChunkRetrieverTest, PassagesOfTheOwnDocumentAreLeftOut) {
  infer::PassagesOfText own(*index_, "Some OWLS hunt  at night, they eat mice!");
  const auto in_own = [&](int64_t row) { return own.has(row); };
  for (int i = 0; i < 2; ++i) {  // the second time from memory
    const std::vector<int64_t> ids = retriever(1, 17).find(tokenizer_->encode("owls hunt"), in_own);
    EXPECT_EQ(text_of(ids, 0, 17), "owls sleep by day");
  }
  infer::PassagesOfText near(*index_, "owls hunt at nightfall");
  const auto in_near = [&](int64_t row) { return near.has(row); };
  EXPECT_EQ(text_of(retriever(1, 9).find(tokenizer_->encode("owls hunt"), in_near), 0, 9), "owls hunt");
}

std::unique_ptr<nn::Model> byte_model() {
  const NamedSpec named = changed("retro-tiny", {"vocab_size=256", "retrieval.padding_token=7"});
  auto model = std::make_unique<nn::Model>(named.spec, Device::cpu(1), nn::ModelOptions{.dtype = DType::f64});
  scramble(*model);
  return model;
}

TEST_F(ChunkRetrieverTest, GeneratingWithACacheEqualsFullForwards) {
  const auto model = byte_model();
  const infer::ChunkRetriever chunks(
      *index_,
      [this](const std::string& query, int64_t top) {
        return index_->search({query, {}}, {.top = top}, threads_);
      },
      *tokenizer_, *model->spec().retrieval);
  int64_t searches = 0;
  infer::GenerateOptions options;
  options.max_tokens = 12;
  options.sampler.temperature = 0;
  options.neighbours = [&](std::span<const TokenId> chunk) {
    ++searches;
    return chunks.find(chunk);
  };
  const std::vector<TokenId> prompt = tokenizer_->encode("owls hunt");
  const auto cached = infer::generate(*model, {prompt}, options)[0].ids;
  EXPECT_EQ(searches, (9 + 11) / 4) << "one search for each complete chunk";
  options.cache = false;
  EXPECT_EQ(infer::generate(*model, {prompt}, options)[0].ids, cached);
  options.draft_tokens = 2;
  expect_error([&] { infer::generate(*model, {prompt}, options); }, "excludes knn");
  const auto plain = std::make_unique<nn::Model>(changed("llama-tiny", {"vocab_size=256"}).spec, Device::cpu(1));
  options.draft_tokens = 0;
  expect_error([&] { infer::generate(*plain, {prompt}, options); }, "without retrieval");
}

TEST_F(ChunkRetrieverTest, EvaluationUsesTheNeighboursOfEveryWindow) {
  const auto model = byte_model();
  const std::vector<TokenId> ids = tokenizer_->encode("owls hunt at night and bees sleep");
  infer::EvaluateOptions options;
  options.context = 10;
  options.neighbours = [&](std::span<const TokenId> chunk) { return retriever(2, 6).find(chunk); };
  const double with = infer::evaluate(*model, ids, options).total;
  // The expected loss, by whole forward passes over the windows 0 … 9, 10 … 19, …
  double truth = 0;
  for (size_t begin = 0; begin + 1 < ids.size(); begin += 10) {
    const size_t length = std::min<size_t>(10, ids.size() - 1 - begin);
    std::vector<int64_t> found;
    for (size_t c = 0; c + 4 <= length; c += 4) {
      const auto one = retriever(2, 6).find(std::span(ids).subspan(begin + c, 4));
      found.insert(found.end(), one.begin(), one.end());
    }
    const auto n = static_cast<int64_t>(length);
    const std::vector<int64_t> inputs(ids.begin() + static_cast<long>(begin),
                                      ids.begin() + static_cast<long>(begin) + n);
    const std::vector<int64_t> targets(ids.begin() + static_cast<long>(begin) + 1,
                                       ids.begin() + static_cast<long>(begin) + 1 + n);
    nn::RunOptions run;
    if (n >= 4) run.neighbours = Tensor::from(found, {1, n / 4, 2, 6}, model->device());
    truth += static_cast<double>(n) * model
                                          ->loss(Tensor::from(inputs, {1, n}, model->device()),
                                                 Tensor::from(targets, {1, n}, model->device()), {}, run)
                                          .cross_entropy.to_vector<double>()[0];
  }
  EXPECT_NEAR(with, truth, 1e-6);
  options.neighbours = {};
  EXPECT_GT(std::abs(infer::evaluate(*model, ids, options).total - with), 1e-6);
}

TEST(NeighbourFile, BatchesHaveTheNeighboursOfTheirChunks) {
  const TemporaryFolder folder;
  const std::string path = folder / "train.bin";
  data::TokenWriter tokens(path, 100, 0);
  std::vector<int32_t> ids(30);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  tokens.write(ids);
  tokens.publish();
  const data::NeighbourSizes sizes{4, 2, 3};
  const data::TokenFile file = data::TokenFile::open(path);
  expect_error([&] { data::Neighbours::open(file, sizes, 99); }, "lamina index neighbours INDEX");
  EXPECT_EQ(data::neighbours_path(path), folder / "train.neighbours.bin");
  data::TokenWriter writer(data::neighbours_path(path), 100, 0);
  for (int32_t c = 0; c < 7; ++c) {  // token 10 · chunk + place
    writer.write(std::vector<int32_t>{10 * c, 10 * c + 1, 10 * c + 2, 10 * c + 3, 10 * c + 4, 10 * c + 5});
    writer.end_document();
  }
  writer.publish();
  const data::Neighbours neighbours = data::Neighbours::open(file, sizes, 99);
  const data::Batches batches(file, {.batch = 3, .length = 8, .order = data::Order::random, .seed = 5, .align = 4});
  for (int64_t step = 0; step < 5; ++step) {
    data::Batch batch = batches.at(step);
    neighbours.add_to(batch);
    EXPECT_EQ(batch.neighbour_shape, (std::array<int64_t, 3>{2, 2, 3}));
    for (int64_t row = 0; row < 3; ++row) {
      const int64_t first = batch.ids[static_cast<size_t>(row * 8)];
      ASSERT_EQ(first % 4, 0);
      for (int64_t i = 0; i < 12; ++i) {
        const int64_t chunk = first / 4 + i / 6;
        EXPECT_EQ(batch.neighbours[static_cast<size_t>(row * 12 + i)], chunk * 10 + i % 6);
      }
    }
  }
  // The last window of an evaluation extends past the last complete chunk.
  data::Batch last = data::evaluation_batch(file, 2, 8, data::evaluation_batches(file, 2, 8) - 1);
  neighbours.add_to(last);
  EXPECT_EQ(last.neighbours.back(), 99);
  expect_error([&] { data::Neighbours::open(file, {5, 2, 3}, 99); }, "6 chunks of 5 tokens with 2 x 3 each");
}

}  // namespace
}  // namespace lamina::testing
