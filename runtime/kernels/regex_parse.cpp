// regex_parse.cpp: a pattern becomes a tree, the tree an automaton. Sizes are counted before anything is
// written, so a pattern that repeats repetitions is refused before it is large.
#include <initializer_list>

#include "kernels/regex.h"

namespace opforge::kernels {
namespace {

constexpr uint32_t kNone = UINT32_MAX;
constexpr int64_t kMostPattern = 1 << 16;
constexpr int kMostNested = 200;
constexpr uint32_t kMostRepeats = 1000;
constexpr uint32_t kLastCode = 0x10FFFF;

struct Item {
  enum Kind : uint8_t { kEmpty, kSet, kAssert, kSequence, kChoice, kRepeat } kind;
  uint8_t assertion;
  uint32_t set;
  uint32_t first, last, next;  // children, and the next child of the same parent
  uint32_t least, most;        // kRepeat; most kNone = any number
};

struct Named {
  const char* name;
  const char* ranges;  // pairs of characters
};
constexpr Named kPosix[] = {{"alnum", "09AZaz"},
                            {"alpha", "AZaz"},
                            {"ascii", "\x01\x7F"},
                            {"blank", "\t\t  "},
                            {"cntrl", "\x01\x1F\x7F\x7F"},
                            {"digit", "09"},
                            {"graph", "!~"},
                            {"lower", "az"},
                            {"print", " ~"},
                            {"punct", "!/:@[`{~"},
                            {"space", "\t\r  "},
                            {"upper", "AZ"},
                            {"word", "09AZ__az"},
                            {"xdigit", "09AFaf"}};
constexpr Named kPerl[] = {{"d", "09"}, {"s", "\t\n\f\r  "}, {"w", "09AZ__az"}};

bool letter(uint32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool digit(uint32_t c) { return c >= '0' && c <= '9'; }

class Parser {
 public:
  Parser(StringView pattern, const RegexMemory& memory) : text_(pattern), memory_(memory) {}

  const char* run(Regex* regex) {
    if (text_.size > kMostPattern) return "the pattern is too long";
    // A character makes at most two items, one set and, in a class by name, eight ranges; a class that is not
    // of its name has gaps around each.
    const auto n = static_cast<size_t>(text_.size) + 4;
    items_ = make<Item>(4 * n);
    sets_ = make<RegexSet>(n);
    ranges_ = make<RegexRange>(8 * n);
    if (items_ == nullptr || sets_ == nullptr || ranges_ == nullptr) return "there is no memory for it";
    most_items_ = 4 * n, most_sets_ = n, most_ranges_ = 8 * n;
    const uint32_t root = choice(0);
    if (wrong_ == nullptr && at_ < text_.size) wrong_ = "a ')' has no '('";
    if (wrong_ != nullptr) return wrong_;
    const uint64_t steps = size(root) + 1;
    if (steps > kMostRegexSteps) return "the pattern repeats too much";
    steps_ = make<RegexStep>(steps);
    if (steps_ == nullptr) return "there is no memory for it";
    write(root);
    steps_[n_steps_++] = {RegexStep::kMatch, 0, 0, 0};
    *regex = {steps_, n_steps_, sets_, n_sets_, ranges_, n_ranges_};
    return nullptr;
  }

 private:
  template <class T>
  T* make(size_t count) {
    return static_cast<T*>(memory_.allocate(memory_.user, count * sizeof(T)));
  }
  uint32_t fail(const char* what) {
    if (wrong_ == nullptr) wrong_ = what;
    at_ = text_.size;
    return kNone;
  }
  bool more() const { return at_ < text_.size; }
  char peek(int64_t ahead = 0) const { return at_ + ahead < text_.size ? text_.data[at_ + ahead] : '\0'; }
  bool eat(const char* token) {
    const auto n = static_cast<int64_t>(std::strlen(token));
    if (at_ + n > text_.size || std::memcmp(text_.data + at_, token, static_cast<size_t>(n)) != 0)
      return false;
    at_ += n;
    return true;
  }
  uint32_t take() {
    int64_t bytes = 0;
    const uint32_t code = code_point(text_, at_, &bytes);
    at_ += bytes;
    return code;
  }

  // ---- the tree ----
  uint32_t item(Item::Kind kind) {
    if (n_items_ == most_items_) return fail("the pattern is too long");
    items_[n_items_] = {kind, 0, 0, kNone, kNone, kNone, 0, 0};
    return n_items_++;
  }
  void adopt(uint32_t parent, uint32_t child) {
    if (parent == kNone || child == kNone) return;
    if (items_[parent].first == kNone)
      items_[parent].first = child;
    else
      items_[items_[parent].last].next = child;
    items_[parent].last = child;
  }
  uint32_t assertion(char what) {
    const uint32_t made = item(Item::kAssert);
    if (made != kNone) items_[made].assertion = static_cast<uint8_t>(what);
    return made;
  }
  void range(uint32_t first, uint32_t last) {
    if (n_ranges_ == most_ranges_)
      fail("the pattern is too long");
    else
      ranges_[n_ranges_++] = {first, last};
  }
  // The ranges from `first` on as an item that takes one character.
  uint32_t set_of(uint32_t first, bool negated) {
    if (n_sets_ == most_sets_) return fail("the pattern is too long");
    sets_[n_sets_] = {first, n_ranges_ - first, negated, flags_.any_case};
    const uint32_t made = item(Item::kSet);
    if (made != kNone) items_[made].set = n_sets_++;
    return made;
  }
  uint32_t literal(uint32_t code) {
    const uint32_t first = n_ranges_;
    range(code, code);
    return set_of(first, false);
  }
  // The ranges of a name, or what lies between them.
  void named(const char* pairs, bool negated) {
    uint32_t from = 0;
    for (const char* p = pairs; *p != '\0'; p += 2) {
      const uint32_t first = static_cast<uint8_t>(p[0]), last = static_cast<uint8_t>(p[1]);
      if (!negated) range(first, last);
      if (negated && first > from) range(from, first - 1);
      from = last + 1;
    }
    if (negated) range(from, kLastCode);
  }
  bool perl(char name) {
    for (const Named& row : kPerl) {
      if (row.name[0] == name || row.name[0] == name + 32) {
        named(row.ranges, row.name[0] != name);
        return true;
      }
    }
    return false;
  }

  // ---- the grammar ----
  struct Flags {
    bool any_case = false, lines = false, dot_all = false;
  };

  uint32_t choice(int depth) {
    if (depth > kMostNested) return fail("parentheses are too deep");
    const uint32_t made = item(Item::kChoice);
    do adopt(made, sequence(depth));
    while (wrong_ == nullptr && eat("|"));
    return made;
  }

  uint32_t sequence(int depth) {
    const uint32_t made = item(Item::kSequence);
    while (more() && peek() != '|' && peek() != ')') {
      if (eat("\\Q")) {
        uint32_t last = kNone;  // what follows the end may repeat it
        while (more() && !eat("\\E")) {
          adopt(made, last);
          last = literal(take());
        }
        if (last != kNone) adopt(made, repeated(last));
        continue;
      }
      uint32_t child = atom(depth);
      if (child != kNone) adopt(made, repeated(child));
    }
    return made;
  }

  bool number(uint32_t* value) {
    if (!digit(static_cast<uint8_t>(peek()))) return false;
    for (*value = 0; digit(static_cast<uint8_t>(peek())); ++at_)
      *value = *value > kMostRepeats ? *value : *value * 10 + static_cast<uint32_t>(peek() - '0');
    return true;
  }
  // {n}, {n,} or {n,m}; anything else in braces is no repetition.
  bool counts(uint32_t* least, uint32_t* most) {
    const int64_t begin = at_;
    if (eat("{") && number(least)) {
      *most = *least;
      if (eat(",") && !number(most)) *most = kNone;
      if (eat("}")) return true;
    }
    at_ = begin;
    return false;
  }

  uint32_t repeated(uint32_t child) {
    bool twice = false;
    for (; wrong_ == nullptr; twice = true) {
      uint32_t least = 0, most = kNone;
      if (eat("+")) {
        least = 1;
      } else if (eat("?")) {
        most = 1;
      } else if (!eat("*") && !counts(&least, &most)) {
        return child;
      }
      if (twice) return fail("a repetition follows another one");
      if (least > kMostRepeats || (most != kNone && (most > kMostRepeats || most < least)))
        return fail("a repetition is none that RE2 knows (0 to 1000, in order)");
      eat("?");  // which of the matches is sought makes no difference to whether there is one
      const uint32_t made = item(Item::kRepeat);
      if (made == kNone) return kNone;
      items_[made].least = least;
      items_[made].most = most;
      adopt(made, child);
      child = made;
    }
    return kNone;
  }

  uint32_t atom(int depth) {
    if (eat("(")) return group(depth);
    if (eat("[")) return klass();
    if (eat("\\")) return escape();
    const char c = peek();
    if (c == '*' || c == '+' || c == '?') return fail("there is nothing that a repetition could repeat");
    if (eat(".")) {
      const uint32_t first = n_ranges_;
      if (!flags_.dot_all) range('\n', '\n');
      return set_of(first, true);
    }
    if (eat("^")) return assertion(flags_.lines ? '^' : 'A');
    if (eat("$")) return assertion(flags_.lines ? '$' : 'z');
    return literal(take());
  }

  uint32_t group(int depth) {
    const Flags outside = flags_;
    if (eat("?")) {
      if (eat("P<") || eat("<")) {
        const int64_t begin = at_;
        while (letter(static_cast<uint8_t>(peek())) || digit(static_cast<uint8_t>(peek())) || peek() == '_')
          ++at_;
        if (at_ == begin || !eat(">")) return fail("looking behind and groups without a name are not RE2's");
      } else {
        bool on = true;
        for (; more() && peek() != ')' && peek() != ':'; ++at_) {
          switch (peek()) {
            case '-':
              on = false;
              break;
            case 'i':
              flags_.any_case = on;
              break;
            case 'm':
              flags_.lines = on;
              break;
            case 's':
              flags_.dot_all = on;
              break;
            case 'U':
              break;
            default:
              return fail("RE2 knows no such group (looking ahead and behind are none of its)");
          }
        }
        if (eat(")")) return item(Item::kEmpty);  // for the rest of the group around
        if (!eat(":")) return fail("a '(' has no ')'");
      }
    }
    const uint32_t inside = choice(depth + 1);
    flags_ = outside;
    if (wrong_ == nullptr && !eat(")")) return fail("a '(' has no ')'");
    return inside;
  }

  uint32_t hexadecimal(uint32_t* code) {
    const bool braces = eat("{");
    int digits = 0;
    *code = 0;
    for (; digits < (braces ? 8 : 2); ++digits, ++at_) {
      const char c = peek();
      const int value = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (value < 0) break;
      *code = *code * 16 + static_cast<uint32_t>(value);
    }
    if (digits == 0 || (!braces && digits != 2) || (braces && !eat("}")) || *code > kLastCode)
      return fail("\\x is followed by no code point");
    return 0;
  }
  // A character that is written with a backslash; false where it stands for something else.
  bool escaped(uint32_t* code) {
    const char c = peek();
    constexpr char kFrom[] = "ntrfva", kTo[] = "\n\t\r\f\v\a";
    const char* found = c == '\0' ? nullptr : std::strchr(kFrom, c);
    if (found != nullptr) {
      *code = static_cast<uint8_t>(kTo[found - kFrom]);
      ++at_;
    } else if (eat("x")) {
      hexadecimal(code);
    } else if (c >= '0' && c <= '7' && (c == '0' || (peek(1) >= '0' && peek(1) <= '7'))) {
      *code = 0;
      for (int k = 0; k < 3 && peek() >= '0' && peek() <= '7'; ++k, ++at_)
        *code = *code * 8 + static_cast<uint32_t>(peek() - '0');
    } else if (more() && static_cast<uint8_t>(c) < 0x80 && !letter(static_cast<uint8_t>(c)) &&
               !digit(static_cast<uint8_t>(c))) {
      *code = take();
    } else {
      return false;
    }
    return true;
  }

  uint32_t escape() {
    if (!more()) return fail("the pattern ends with a backslash");
    const uint32_t first = n_ranges_;
    if (perl(peek())) {
      ++at_;
      return set_of(first, false);
    }
    for (const char what : {'b', 'B', 'A', 'z'}) {
      if (peek() != what) continue;
      ++at_;
      return assertion(what);
    }
    uint32_t code = 0;
    if (escaped(&code)) return literal(code);
    return fail(digit(static_cast<uint8_t>(peek())) ? "RE2 has no references to groups"
                                                    : "the character behind a backslash means nothing here");
  }

  bool posix() {
    const bool negated = text_.size > at_ + 2 && text_.data[at_ + 2] == '^';
    const int64_t begin = at_ + 2 + negated;
    int64_t end = begin;
    while (end < text_.size && letter(static_cast<uint8_t>(text_.data[end]))) ++end;
    if (end + 1 >= text_.size || text_.data[end] != ':' || text_.data[end + 1] != ']') return false;
    for (const Named& row : kPosix) {
      if (!same_bytes({text_.data + begin, end - begin},
                      {row.name, static_cast<int64_t>(std::strlen(row.name))}))
        continue;
      named(row.ranges, negated);
      at_ = end + 2;
      return true;
    }
    fail("a class has no such name");
    return true;
  }

  // One character of a class in brackets.
  bool member(uint32_t* code) {
    if (!eat("\\")) {
      *code = take();
      return true;
    }
    if (escaped(code)) return true;
    fail("the character behind a backslash means nothing in brackets");
    return false;
  }

  uint32_t klass() {
    const uint32_t first = n_ranges_;
    const bool negated = eat("^");
    for (bool begin = true; begin || !eat("]"); begin = false) {
      if (!more()) return fail("a '[' has no ']'");
      if (peek() == '[' && peek(1) == ':' && posix()) continue;
      if (peek() == '\\' && perl(peek(1))) {
        at_ += 2;
        continue;
      }
      uint32_t low = 0, high = 0;
      if (!member(&low)) return kNone;
      high = low;
      if (peek() == '-' && at_ + 1 < text_.size && peek(1) != ']') {
        ++at_;
        if (!member(&high)) return kNone;
        if (high < low) return fail("a range of characters goes backwards");
      }
      if (wrong_ != nullptr) return kNone;
      range(low, high);
    }
    return wrong_ == nullptr ? set_of(first, negated) : kNone;
  }

  // ---- the automaton ----
  static uint64_t limited(uint64_t n) {
    return n > 2 * uint64_t{kMostRegexSteps} ? 2 * uint64_t{kMostRegexSteps} : n;
  }

  // Steps of an item, which nothing is less than one of, so that they bound the work of writing it, too.
  uint64_t size(uint32_t at) const {
    const Item& it = items_[at];
    uint64_t sum = 0;
    for (uint32_t child = it.first; child != kNone; child = items_[child].next) {
      sum = limited(sum + size(child));
      if (it.kind == Item::kChoice && items_[child].next != kNone) sum = limited(sum + 2);
    }
    if (it.kind == Item::kSet || it.kind == Item::kAssert) return 1;
    if (it.kind != Item::kRepeat) return sum == 0 ? 1 : sum;
    return limited(it.most == kNone ? it.least * sum + sum + 2
                                    : it.least * sum + (it.most - it.least) * (sum + 1));
  }

  void write(uint32_t at) {
    const Item& it = items_[at];
    switch (it.kind) {
      case Item::kEmpty:
        return;
      case Item::kSet:
        steps_[n_steps_++] = {RegexStep::kSet, 0, it.set, 0};
        return;
      case Item::kAssert:
        steps_[n_steps_++] = {RegexStep::kAssert, it.assertion, 0, 0};
        return;
      case Item::kSequence:
        for (uint32_t child = it.first; child != kNone; child = items_[child].next) write(child);
        return;
      case Item::kChoice: {
        uint32_t ends = kNone;  // the jumps to the end, a list through their x
        for (uint32_t child = it.first; child != kNone; child = items_[child].next) {
          const bool last = items_[child].next == kNone;
          const uint32_t split = n_steps_;
          if (!last) steps_[n_steps_++] = {RegexStep::kSplit, 0, split + 1, 0};
          write(child);
          if (last) break;
          steps_[n_steps_] = {RegexStep::kJump, 0, ends, 0};
          ends = n_steps_++;
          steps_[split].y = n_steps_;
        }
        join(ends, false);
        return;
      }
      case Item::kRepeat: {
        for (uint32_t k = 0; k < it.least; ++k) write(it.first);
        if (it.most == kNone) {
          const uint32_t split = n_steps_;
          steps_[n_steps_++] = {RegexStep::kSplit, 0, split + 1, 0};
          write(it.first);
          steps_[n_steps_++] = {RegexStep::kJump, 0, split, 0};
          steps_[split].y = n_steps_;
          return;
        }
        uint32_t ends = kNone;  // the splits that leave, a list through their y
        for (uint32_t k = it.least; k < it.most; ++k) {
          steps_[n_steps_] = {RegexStep::kSplit, 0, n_steps_ + 1, ends};
          ends = n_steps_++;
          write(it.first);
        }
        join(ends, true);
        return;
      }
    }
  }
  void join(uint32_t list, bool splits) {
    while (list != kNone) {
      uint32_t& link = splits ? steps_[list].y : steps_[list].x;
      list = link;
      link = n_steps_;
    }
  }

  StringView text_;
  const RegexMemory& memory_;
  int64_t at_ = 0;
  const char* wrong_ = nullptr;
  Flags flags_;
  Item* items_ = nullptr;
  RegexSet* sets_ = nullptr;
  RegexRange* ranges_ = nullptr;
  RegexStep* steps_ = nullptr;
  size_t most_items_ = 0, most_sets_ = 0, most_ranges_ = 0;
  uint32_t n_items_ = 0, n_sets_ = 0, n_ranges_ = 0, n_steps_ = 0;
};

}  // namespace

const char* compile_regex(StringView pattern, const RegexMemory& memory, Regex* regex) {
  return Parser(pattern, memory).run(regex);
}

}  // namespace opforge::kernels
