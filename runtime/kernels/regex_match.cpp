// regex_match.cpp: runs an automaton over a text, all of its states at once.
#include "kernels/regex.h"

namespace opforge::kernels {
namespace {

bool is_word(uint32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// What is before and behind a place of the text.
struct Between {
  bool begin, end, after_newline, before_newline, boundary;
  bool holds(uint8_t assertion) const {
    switch (static_cast<char>(assertion)) {
      case 'A':
        return begin;
      case 'z':
        return end;
      case '^':
        return begin || after_newline;
      case '$':
        return end || before_newline;
      case 'b':
        return boundary;
      default:
        return !boundary;
    }
  }
};

Between between(StringView text, int64_t at, uint32_t before) {
  int64_t bytes = 0;
  const bool begin = at == 0, end = at == text.size;
  const uint32_t behind = end ? 0 : code_point(text, at, &bytes);
  return {begin, end, !begin && before == '\n', !end && behind == '\n',
          (!begin && is_word(before)) != (!end && is_word(behind))};
}

bool in_ranges(const RegexRange* ranges, uint32_t count, uint32_t code) {
  for (uint32_t k = 0; k < count; ++k)
    if (code >= ranges[k].first && code <= ranges[k].last) return true;
  return false;
}

bool takes(const Regex& regex, const RegexSet& set, uint32_t code) {
  const RegexRange* ranges = regex.ranges + set.first;
  bool found = in_ranges(ranges, set.count, code);
  if (!found && set.any_case)
    found = in_ranges(ranges, set.count, lower_case(code)) || in_ranges(ranges, set.count, upper_case(code));
  return found != set.negated;
}

// Steps that the automaton is at, each once.
class Steps {
 public:
  Steps(const Regex& regex, uint32_t* memory)
      : regex_(regex), list_(memory), place_(memory + regex.n_steps) {}
  void clear() { count_ = 0; }
  uint32_t count() const { return count_; }
  uint32_t operator[](uint32_t k) const { return list_[k]; }
  // Adds a step and those that follow without a character.
  void add(uint32_t step, const Between& between) {
    uint32_t done = count_;
    put(step);
    // What is added behind is followed in turn.
    for (; done < count_; ++done) {
      const RegexStep& s = regex_.steps[list_[done]];
      if (s.kind == RegexStep::kJump) put(s.x);
      if (s.kind == RegexStep::kSplit) {
        put(s.x);
        put(s.y);
      }
      if (s.kind == RegexStep::kAssert && between.holds(s.assertion)) put(list_[done] + 1);
    }
  }

 private:
  void put(uint32_t step) {
    const uint32_t at = place_[step];
    if (at < count_ && list_[at] == step) return;
    place_[step] = count_;
    list_[count_++] = step;
  }
  const Regex& regex_;
  uint32_t *list_, *place_;
  uint32_t count_ = 0;
};

}  // namespace

bool Regex::match(StringView text, void* scratch) const {
  auto* memory = static_cast<uint32_t*>(scratch);
  std::memset(memory, 0, this->scratch());  // places are read before they are written
  Steps here(*this, memory), next(*this, memory + 2 * size_t{n_steps});
  Steps *from = &here, *to = &next;
  from->add(0, between(text, 0, 0));
  int64_t bytes = 0;
  for (int64_t at = 0; at < text.size && from->count() > 0; at += bytes) {
    const uint32_t code = code_point(text, at, &bytes);
    const Between behind = between(text, at + bytes, code);
    to->clear();
    for (uint32_t k = 0; k < from->count(); ++k) {
      const RegexStep& s = steps[(*from)[k]];
      if (s.kind == RegexStep::kSet && takes(*this, sets[s.x], code)) to->add((*from)[k] + 1, behind);
    }
    Steps* spare = from;
    from = to;
    to = spare;
  }
  for (uint32_t k = 0; k < from->count(); ++k)
    if (steps[(*from)[k]].kind == RegexStep::kMatch) return true;
  return false;
}

}  // namespace opforge::kernels
