// json.h: the smallest JSON reader that test data needs. Aborts on bad input.
#pragma once

#include <stdlib.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace test {

struct Json {
  enum Kind { kNull, kBool, kInt, kFloat, kString, kArray, kObject };
  Kind kind = kNull;
  bool boolean = false;
  std::string text;  // of strings, and of numbers as they are written
  std::vector<Json> items;
  std::map<std::string, Json> members;

  bool has(const char* name) const { return members.count(name) != 0; }
  const Json& operator[](const char* name) const {
    static const Json none;
    const auto found = members.find(name);
    return found == members.end() ? none : found->second;
  }
  int64_t integer() const { return strtoll(text.c_str(), nullptr, 10); }
  double number() const { return strtod(text.c_str(), nullptr); }
};

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  Json read() {
    Json value;
    switch (peek()) {
      case 'n':
        word("null");
        break;
      case 't':
      case 'f':
        value.kind = Json::kBool;
        value.boolean = peek() == 't';
        word(value.boolean ? "true" : "false");
        break;
      case '"':
        value.kind = Json::kString;
        value.text = string();
        break;
      case '[':
        value.kind = Json::kArray;
        ++at_;
        while (peek() != ']') {
          value.items.push_back(read());
          if (peek() == ',') ++at_;
        }
        ++at_;
        break;
      case '{':
        value.kind = Json::kObject;
        ++at_;
        while (peek() != '}') {
          const std::string name = string();
          if (peek() != ':') abort();
          ++at_;
          value.members[name] = read();
          if (peek() == ',') ++at_;
        }
        ++at_;
        break;
      default:
        number(&value);
    }
    return value;
  }

 private:
  char peek() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
    if (at_ == text_.size()) abort();
    return text_[at_];
  }
  void word(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) abort();
    at_ += expected.size();
  }
  void number(Json* value) {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           std::string_view("+-.eE0123456789").find(text_[at_]) != std::string_view::npos)
      ++at_;
    if (at_ == begin) abort();
    value->text = std::string(text_.substr(begin, at_ - begin));
    value->kind = value->text.find_first_of(".eE") == std::string::npos ? Json::kInt : Json::kFloat;
  }
  std::string string() {
    std::string out;
    if (peek() != '"') abort();
    for (++at_; text_[at_] != '"'; ++at_) {
      if (text_[at_] != '\\') {
        out += text_[at_];
        continue;
      }
      const char c = text_[++at_];
      const size_t simple = std::string_view("\"\\/bfnrt").find(c);
      if (simple != std::string_view::npos) {
        out += "\"\\/\b\f\n\r\t"[simple];
        continue;
      }
      const std::string digits(
          text_.substr(at_ + 1, 4));  // of a control character: others are written as they are
      if (c != 'u' || digits.substr(0, 2) != "00") abort();
      out += static_cast<char>(strtol(digits.c_str(), nullptr, 16));
      at_ += 4;
    }
    ++at_;
    return out;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace test
