#include "lamina/data/prepare.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <numeric>
#include <set>
#include <sstream>
#include <thread>

#include "data/data_support.h"
#include "lamina/base/files.h"
#include "lamina/data/corpora.h"
#include "lamina/data/sha256.h"
#include "lamina/data/synthetic.h"
#include "lamina/text/load.h"
#include "support/error_of.h"

namespace lamina::testing {
namespace {

using data::Prepared;
using data::PrepareOptions;
using data::Sources;
using data::Split;
using data::TokenFile;

/// Bytes, and eos 256.
class ByteFake : public text::Tokenizer {
 public:
  int64_t vocab_size() const override { return 257; }
  void encode(std::string_view text, std::vector<text::TokenId>& ids, bool, text::UnknownCharacters*) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
  std::string decode(std::span<const text::TokenId>) const override { return ""; }
  std::string token(text::TokenId) const override { return ""; }
  bool is_special(text::TokenId id) const override { return id == 256; }
  std::optional<text::TokenId> id_of(std::string_view) const override { return {}; }
  std::optional<text::TokenId> eos() const override { return 256; }
  std::string to_json() const override { return "{}"; }
};

/// The file's documents as text, eos as "$".
std::vector<std::string> documents_of(const std::string& path) {
  const TokenFile file = TokenFile::open(path);
  file.verify();
  std::vector<std::string> documents;
  for (int64_t d = 0; d < file.document_count(); ++d) {
    std::vector<int64_t> ids(static_cast<size_t>(file.document_start(d + 1) - file.document_start(d)));
    file.read(file.document_start(d), ids);
    documents.emplace_back();
    for (const int64_t id : ids) documents.back() += id == 256 ? '$' : static_cast<char>(id);
  }
  return documents;
}

class Prepare : public ::testing::Test {
 protected:
  Prepared encode(const std::vector<std::string>& sources, double fraction, Split split) {
    return data::encode_sources(Sources(sources), ByteFake(), folder_ / "train.bin", folder_ / "validation.bin",
                                fraction, split);
  }
  std::vector<std::string> train() { return documents_of(folder_ / "train.bin"); }
  std::vector<std::string> validation() { return documents_of(folder_ / "validation.bin"); }

  TemporaryFolder folder_;
};

using Texts = std::vector<std::string>;

TEST(Sha256, MatchesTheStandardsVectors) {  // NIST, FIPS 180-4 examples
  EXPECT_EQ(data::sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(data::sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(data::sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(data::sha256_hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_F(Prepare, TheTailOfASingleTextIsValidation) {
  write_text(folder_ / "a.txt", "0123456789abcdefghij");
  const Prepared prepared = encode({folder_ / "a.txt"}, 0.1, Split::tail);
  EXPECT_EQ(train(), (Texts{"0123456789abcdefgh"}));  // no end of document: it goes on
  EXPECT_EQ(validation(), (Texts{"ij$"}));
  EXPECT_EQ(prepared.train.bytes, 18);
  EXPECT_EQ(prepared.validation.tokens, 3);
}

TEST_F(Prepare, CharactersAreNotCut) {
  write_text(folder_ / "a.txt", "aaaaaaaa\xc3\xa4\xc3\xa4");  // 12 bytes; 3/4 of them end in a character
  encode({folder_ / "a.txt"}, 0.25, Split::tail);
  EXPECT_EQ(train(), (Texts{"aaaaaaaa\xc3\xa4"}));
}

TEST_F(Prepare, DocumentsOfFilesFoldersAndLines) {
  std::filesystem::create_directories(folder_ / "texts/deeper");
  write_text(folder_ / "texts/b.txt", "bb");
  write_text(folder_ / "texts/deeper/a.md", "aa");
  write_text(folder_ / "texts/picture.png", "no text");
  write_text(folder_ / "texts/empty.txt", "");
  write_text(folder_ / "lines.jsonl", "{\"text\": \"one\\n\"}\n\n{\"id\": 3, \"text\": \"two\"}\n{\"text\": \"\"}\n");
  const Prepared prepared = encode({folder_ / "lines.jsonl", folder_ / "texts"}, 0, Split::tail);
  EXPECT_EQ(train(), (Texts{"one\n$", "two$", "bb$", "aa$"}));
  EXPECT_EQ(prepared.train.documents, 4);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "validation.bin"));
}

TEST_F(Prepare, EveryDocumentMayGiveItsEnd) {
  write_text(folder_ / "a.txt", "aaaaaaaaaA");
  write_text(folder_ / "b.txt", "bbbbbbbbbB");
  encode({folder_ / "a.txt", folder_ / "b.txt"}, 0.1, Split::each);
  EXPECT_EQ(train(), (Texts{"aaaaaaaaa", "bbbbbbbbb"}));
  EXPECT_EQ(validation(), (Texts{"A$", "B$"}));
}

TEST_F(Prepare, WholeDocumentsByChance) {
  std::ofstream lines(folder_ / "a.jsonl");
  for (int i = 0; i < 1000; ++i) lines << "{\"text\": \"" << 1000 + i << "\"}\n";
  lines.close();
  encode({folder_ / "a.jsonl"}, 0.2, Split::documents);
  Texts all = train();
  EXPECT_NEAR(static_cast<double>(all.size()), 800, 60);  // standard deviation 12.6
  for (const std::string& document : validation()) all.push_back(document);
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), 1000U);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], std::to_string(1000 + i) + "$");
}

/// A text longer than a piece comes out whole, and is cut where a line begins.
TEST_F(Prepare, LongTextsInPieces) {
  std::string text;
  for (int i = 0; text.size() < 2500000; ++i) text += "line " + std::to_string(i) + "\n  indented\n";
  write_text(folder_ / "a.txt", text);
  std::string joined;
  int pieces = 0;
  Sources({folder_ / "a.txt"}).each([&](const data::Piece& piece) {
    if (pieces++ > 0) {
      EXPECT_EQ(piece.text.substr(0, 5), "line ");
    }
    EXPECT_EQ(piece.at, static_cast<int64_t>(joined.size()));
    EXPECT_EQ(piece.source_begin, piece.at);
    joined += piece.text;
    EXPECT_EQ(piece.source_end, static_cast<int64_t>(joined.size()));
    EXPECT_EQ(piece.last, joined.size() == text.size());
  });
  EXPECT_EQ(joined, text);
  EXPECT_GE(pieces, 3);
  encode({folder_ / "a.txt"}, 0.5, Split::tail);
  EXPECT_EQ(train()[0] + validation()[0], text + "$");
  EXPECT_EQ(data::cut_of("aaaa\xc3\xa4zz", 5), 6U);
}

TEST_F(Prepare, AFolderWithEverything) {
  std::istringstream input("to be or not to be\n");
  PrepareOptions options;
  options.sources = {"-"};
  options.reading.input = &input;
  options.folder = folder_ / "deep/out";
  options.tokenizer = "char";
  std::vector<std::string> stages;
  options.watch = [&](const data::PrepareProgress& progress) { stages.emplace_back(progress.stage); };
  const Prepared prepared = data::prepare(options);
  EXPECT_EQ(prepared.vocab_size, 8);  // "\n bento" and r
  EXPECT_EQ(prepared.train.tokens + prepared.validation.tokens, 19);
  EXPECT_EQ(stages, (Texts{"reading a pipe", "collecting characters", "encoding"}));
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(options.folder)) names.insert(entry.path().filename());
  EXPECT_TRUE(names.contains("train.bin") && names.contains("validation.bin") && names.contains("tokenizer.json"));
  EXPECT_EQ(names.size(), 5U);  // the others are data.json and tokenizer_config.json; the input is not copied
  const auto file = TokenFile::open(folder_ / "deep/out/train.bin");
  EXPECT_EQ(file.tokenizer_hash(), data::sha256_short(read_text(folder_ / "deep/out/tokenizer.json")));

  // The tokenizer it left is one to name; what is there is replaced only when asked, and nothing else is.
  write_text(folder_ / "b.txt", "be not\nor to");
  options.sources = {folder_ / "b.txt"};
  EXPECT_NE(error_of([&] { data::prepare(options); }).find("--force"), std::string::npos);
  options.replace = true;
  options.tokenizer = folder_ / "deep/out";
  EXPECT_EQ(data::prepare(options).vocab_size, 8);
  write_text(folder_ / "deep/out/thesis.txt", "years of work");
  EXPECT_NE(error_of([&] { data::prepare(options); }).find("thesis.txt"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "deep/out/thesis.txt"));
}

TEST_F(Prepare, CharactersWithAByteFallback) {
  write_text(folder_ / "a.txt", "to be or not to be\n\xff");  // an invalid UTF-8 byte is accepted, too
  PrepareOptions options;
  options.sources = {folder_ / "a.txt"};
  options.folder = folder_ / "out";
  options.tokenizer = "char+bytes";
  options.validation_fraction = 0;
  const Prepared prepared = data::prepare(options);
  EXPECT_EQ(prepared.vocab_size, 8 + 256);
  EXPECT_EQ(prepared.train.tokens, 20);
  const auto tokenizer = text::load_tokenizer(options.folder);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("été")), "été");
}

TEST_F(Prepare, PipesAreReadLikeFiles) {
  const std::string text = data::synthetic_play(3000000, 1);  // more than a piece, and than a pipe holds
  write_text(folder_ / "a.txt", text);
  const std::string fifo = folder_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(fifo, std::ios::binary) << text; });
  const Sources piped({fifo}, {.spool = folder_ / ""});
  writer.join();
  EXPECT_EQ(piped.bytes(), static_cast<int64_t>(text.size()));
  const Sources file({folder_ / "a.txt"});
  for (int again = 0; again < 2; ++again) {
    std::string read;
    piped.each([&](const data::Piece& piece) { read += piece.text; });
    EXPECT_EQ(read, text);
  }
  EXPECT_EQ(data::tokenizer_for("bpe:300", piped)->to_json(), data::tokenizer_for("bpe:300", file)->to_json());
}

TEST_F(Prepare, PairsAreLearnedAndDocumentsEnd) {
  write_text(folder_ / "a.txt", data::synthetic_play(20000, 1));
  write_text(folder_ / "b.txt", data::synthetic_play(20000, 2));
  PrepareOptions options;
  options.sources = {folder_ / "a.txt", folder_ / "b.txt"};
  options.folder = folder_ / "out";
  options.tokenizer = "bpe:400";
  options.split = Split::each;
  const Prepared prepared = data::prepare(options);
  EXPECT_EQ(prepared.vocab_size, 400);
  EXPECT_LT(prepared.train.tokens, 20000);
  const auto tokenizer = text::load_tokenizer(folder_ / "out");
  const TokenFile file = TokenFile::open(folder_ / "out/validation.bin");
  ASSERT_EQ(file.document_count(), 2);
  std::vector<int64_t> ids(static_cast<size_t>(file.document_start(1)));
  file.read(0, ids);
  ASSERT_TRUE(tokenizer->eos().has_value());
  EXPECT_EQ(ids.back(), *tokenizer->eos());
  const std::vector<text::TokenId> narrow(ids.begin(), ids.end() - 1);
  EXPECT_EQ(tokenizer->decode(narrow), data::synthetic_play(20000, 1).substr(18000));
}

TEST_F(Prepare, ErrorsSayWhatToDo) {
  write_text(folder_ / "empty.txt", "");
  write_text(folder_ / "a.txt", "text");
  write_text(folder_ / "a.jsonl", "{\"text\": \"x\"}\n{\"body\": \"x\"}\n");
  write_text(folder_ / "b.jsonl", "{\"text\": 7}\n");
  write_text(folder_ / "c.jsonl", "{\"text\": \n");
  write_text(folder_ / "latin.txt", "caf\xe9");
  std::filesystem::create_directory(folder_ / "nothing");
  const auto expect = [&](const std::string& source, const std::string& part, const std::string& tokenizer = "byte") {
    PrepareOptions options;
    options.sources = {source};
    options.folder = folder_ / "out";
    options.tokenizer = tokenizer;
    const std::string message = error_of([&] { data::prepare(options); });
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  };
  expect(folder_ / "none.txt", "does not exist");
  expect(folder_ / "empty.txt", "no text in it");
  expect(folder_ / "nothing", "no .txt");
  expect(folder_ / "a.jsonl", "a.jsonl:2: has no \"text\"");
  expect(folder_ / "b.jsonl", "is number");
  expect(folder_ / "c.jsonl", "c.jsonl:1: is not JSON");
  expect(folder_ / "latin.txt", "not UTF-8 at byte 3", "char");
  expect(folder_ / "a.txt", "bpe:N", "bpf:400");
  expect(folder_ / "a.txt", "for example bpe:4096", "bpe:many");
  EXPECT_THROW(data::split_of("middle"), Error);
  EXPECT_NE(error_of([&] { encode({folder_ / "a.txt"}, 0.9, Split::documents); }).size(), 0U);
  EXPECT_NE(error_of([&] { encode({folder_ / "a.txt"}, 1.0, Split::tail); }).find("less than 1"), std::string::npos);
}

TEST(SyntheticPlay, IsTheSameForASeed) {
  const std::string play = data::synthetic_play(200000, 1);
  EXPECT_EQ(play.size(), 200000U);
  EXPECT_EQ(data::synthetic_play(1000, 1), play.substr(0, 1000));
  EXPECT_NE(data::synthetic_play(1000, 2), play.substr(0, 1000));
  EXPECT_EQ(data::sha256_hex(play), "92d9772361a6d4fe58942a8a1cdbc3f26bf80c8f18a15006609ddb2f6a836222");
  std::istringstream words(play);
  std::set<std::string> distinct;
  for (std::string word; words >> word;) distinct.insert(word);
  EXPECT_GT(distinct.size(), 300U);
  EXPECT_LT(distinct.size(), 3000U);
  EXPECT_THROW(data::synthetic_play(0, 1), Error);
}

TEST(Corpora, AreKnownByHash) {
  const TemporaryFolder folder;
  write_text(folder / "wrong.txt", "First Citizen:\n");
  data::GetOptions options{"tinyshakespeare", folder / "out", folder / "wrong.txt"};
  EXPECT_NE(error_of([&] { data::get_corpus(options); }).find("86c4e6aa"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  options.from = "";
  EXPECT_NE(error_of([&] { data::get_corpus(options); }).find("--from"), std::string::npos);
  options.name = "tinyshakespear";
  EXPECT_NE(error_of([&] { data::get_corpus(options); }).find("did you mean tinyshakespeare"), std::string::npos);
  options = {"shakespeare", folder / "out", folder / "wrong.txt"};
  EXPECT_NE(error_of([&] { data::get_corpus(options); }).find("cannot be unpacked"), std::string::npos);
  options = {"synthetic", folder / "out"};
  options.synthetic_bytes = 500;
  EXPECT_EQ(read_text(data::get_corpus(options).at(0)), data::synthetic_play(500, 1));
}

}  // namespace
}  // namespace lamina::testing
