#include "lamina/data/synthetic.h"

#include <array>
#include <string_view>
#include <vector>

#include "lamina/base/error.h"
#include "lamina/data/dice.h"

namespace lamina::data {
namespace {

using Words = std::vector<std::string_view>;

/// The vocabulary of a mood. All nouns, adjectives and verbs of a line come from one mood.
struct Mood {
  Words nouns;
  Words adjectives;
  Words verbs;  ///< after "I", "you", "they"
};

const std::array<Mood, 5>& moods() {
  static const std::array<Mood, 5> list{
      {{{"crown", "king", "throne", "sceptre", "realm", "subject", "law", "court", "oath", "prince", "herald",
         "banner"},
        {"royal", "lawful", "noble", "golden", "proud", "ancient", "mighty", "just"},
        {"command", "rule", "serve", "obey", "honour", "crown", "bless", "judge"}},
       {{"sword", "battle", "soldier", "drum", "field", "army", "wound", "shield", "trumpet", "horse", "siege",
         "spear"},
        {"bloody", "valiant", "fierce", "iron", "fearless", "wounded", "savage", "bold"},
        {"fight", "strike", "charge", "conquer", "defend", "bleed", "march", "yield"}},
       {{"heart", "rose", "lover", "kiss", "sigh", "beauty", "lady", "maid", "song", "eye", "lip", "ring"},
        {"sweet", "tender", "gentle", "fair", "blushing", "constant", "dear", "soft"},
        {"love", "woo", "kiss", "adore", "sing", "sigh", "dream", "wed"}},
       {{"grave", "ghost", "night", "tear", "shroud", "bell", "sorrow", "death", "dust", "raven", "tomb", "shadow"},
        {"pale", "mournful", "cold", "silent", "heavy", "bitter", "dark", "weary"},
        {"weep", "mourn", "bury", "die", "fear", "tremble", "fade", "grieve"}},
       {{"sea", "storm", "wind", "ship", "wave", "star", "harbour", "sail", "shore", "thunder", "island", "tide"},
        {"wild", "salt", "roaring", "distant", "calm", "rolling", "deep", "grey"},
        {"sail", "drown", "wander", "drift", "row", "sink", "return", "roam"}}}};
  return list;
}

struct Speaker {
  std::string_view name;
  size_t mood;  ///< the speaker's preferred mood
};
constexpr std::array<Speaker, 14> kSpeakers{{{"ALARIC", 0},
                                             {"BEATRIX", 2},
                                             {"CORVIN", 3},
                                             {"DORIMEL", 1},
                                             {"ELOWEN", 2},
                                             {"First Soldier", 1},
                                             {"GODRIC", 0},
                                             {"HESPERA", 3},
                                             {"ISOLDA", 2},
                                             {"LEONTIN", 4},
                                             {"MIRABEL", 4},
                                             {"Old Sailor", 4},
                                             {"QUEEN", 0},
                                             {"ROWAN", 1}}};

/// Replaces the letters of a pattern by random words: N noun, A adjective, V verb, T determiner, P preposition, M
/// adverb of manner. "Ns" gives a plural.
std::string fill(std::string_view pattern, const Mood& mood, Dice& dice) {
  static const Words determiners{"the", "my", "thy", "our", "this", "that", "his", "her"};
  static const Words prepositions{"upon", "beneath", "beyond", "within", "before", "against", "beside", "above"};
  static const Words manners{"tonight", "no more", "at last", "in vain", "alone", "for ever", "again", "with tears"};
  std::string line;
  for (const char c : pattern) {
    switch (c) {
      case 'N': line += dice.of(mood.nouns); break;
      case 'A': line += dice.of(mood.adjectives); break;
      case 'V': line += dice.of(mood.verbs); break;
      case 'T': line += dice.of(determiners); break;
      case 'P': line += dice.of(prepositions); break;
      case 'M': line += dice.of(manners); break;
      default: line += c;
    }
  }
  return line;
}

std::string verse(const Mood& mood, Dice& dice) {
  static const Words patterns{"and P T A N we V M",    "the A Ns that V P T N",       "for T N and T N must V",
                              "shall T A N V P T N",   "not all T Ns may V M",        "where all the A Ns V M",
                              "as A as T N, I V M",    "what N is this, so A, P T N", "let T A N be P T N",
                              "I V T N, and T N is A", "you V T A N, and I V M",      "so V the Ns P T A N"};
  return fill(dice.of(patterns), mood, dice);
}

void capitalize(std::string& line) {
  if (line[0] >= 'a' && line[0] <= 'z') line[0] = static_cast<char>(line[0] - 'a' + 'A');
}

/// Writes a speech: may address the previous speaker, then lines with punctuation.
void speech(const Speaker& speaker, const Speaker& other, size_t scene_mood, Dice& dice, std::string& text) {
  static const Words greetings{"Good", "My lord", "Alas", "Hear me", "Peace", "Speak", "Come", "Farewell"};
  const Mood& mood = moods()[dice.chance(60) ? speaker.mood : scene_mood];
  text += speaker.name;
  text += ":\n";
  const size_t lines = 1 + dice.below<size_t>(dice.chance(25) ? 8 : 3);
  for (size_t line = 0; line < lines; ++line) {
    std::string words = verse(mood, dice);
    if (line == 0 && dice.chance(40)) {
      std::string name(other.name.substr(other.name.find(' ') + 1));
      for (size_t i = 1; i < name.size(); ++i) name[i] = static_cast<char>(name[i] | 0x20);
      words = str(dice.of(greetings), ", ", name, "; ", words);
    }
    // Every line begins with a capital letter. Sentences may span several lines.
    capitalize(words);
    const bool last = line + 1 == lines;
    const bool ends = last || dice.chance(35);
    text += words;
    text += ends ? (dice.chance(15) ? "!" : dice.chance(15) ? "?" : ".") : (dice.chance(60) ? "," : "");
    text += '\n';
  }
  text += '\n';
}

void scene(size_t number, Dice& dice, std::string& text) {
  static const Words places{"A hall in the castle", "The field of battle", "A garden by moonlight",
                            "A churchyard",         "The deck of a ship",  "Before the city gates"};
  const size_t mood = dice.below(moods().size());
  text += str("SCENE ", number, ". ", places[dice.chance(70) ? mood : dice.below(places.size())], ".\n\n");
  size_t speaker = dice.below(kSpeakers.size());
  size_t other = (speaker + 1 + dice.below(kSpeakers.size() - 1)) % kSpeakers.size();
  const size_t speeches = 12 + dice.below<size_t>(20);
  for (size_t i = 0; i < speeches; ++i) {
    speech(kSpeakers[speaker], kSpeakers[other], mood, dice, text);
    std::swap(speaker, other);
    if (dice.chance(15)) speaker = (other + 1 + dice.below(kSpeakers.size() - 1)) % kSpeakers.size();
  }
}

}  // namespace

std::string synthetic_play(int64_t bytes, uint64_t seed) {
  constexpr int64_t kMost = int64_t{1} << 30;
  LAMINA_CHECK(bytes > 0 && bytes <= kMost, "a synthetic corpus of ", bytes, " bytes; expected 1 to ", kMost);
  Dice dice({seed, 0x706c6179'00000000});  // "play"
  std::string text;
  for (size_t number = 1; static_cast<int64_t>(text.size()) < bytes; ++number) scene(number, dice, text);
  text.resize(static_cast<size_t>(bytes));
  return text;
}

}  // namespace lamina::data
