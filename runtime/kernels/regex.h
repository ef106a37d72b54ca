// regex.h: regular expressions in RE2's syntax, run as automata: the time is that of the text times that of
// the pattern, whatever both are. No backtracking, and no recursion deeper than the parentheses.
#pragma once

#include "kernels/texts.h"

namespace opforge::kernels {

// A step of the automaton. kSet: takes a character of a set. kSplit: goes on at both. kAssert: goes on where
// the place between two characters is as told.
struct RegexStep {
  enum Kind : uint8_t { kSet, kSplit, kJump, kAssert, kMatch } kind;
  uint8_t assertion;
  uint32_t x, y;  // kSet: the set; kSplit: both steps; kJump: the step
};

struct RegexRange {
  uint32_t first, last;
};

// Characters: those in any of the ranges, or in none.
struct RegexSet {
  uint32_t first, count;  // of the ranges
  bool negated, any_case;
};

struct Regex {
  RegexStep* steps = nullptr;
  uint32_t n_steps = 0;
  RegexSet* sets = nullptr;
  uint32_t n_sets = 0;
  RegexRange* ranges = nullptr;
  uint32_t n_ranges = 0;

  // Bytes of scratch that match() needs.
  size_t scratch() const { return size_t{n_steps} * 4 * sizeof(uint32_t); }
  // Whether the whole text matches.
  bool match(StringView text, void* scratch) const;
};

// Memory that lives as long as the automaton.
struct RegexMemory {
  void* (*allocate)(void* user, size_t bytes);
  void* user;
};

constexpr uint32_t kMostRegexSteps = 10000;

// Null when it worked, else what is wrong with the pattern.
const char* compile_regex(StringView pattern, const RegexMemory& memory, Regex* regex);

}  // namespace opforge::kernels
