// log.h: failures as TensorRT takes them: a value that says so, and the words in its log.
#pragma once

#include <atomic>
#include <cstdio>
#include <exception>
#include <string>

#include <NvInfer.h>

#include "common/failure.h"

namespace opforge::tensorrt_host {

// Set by TensorRT for a library that it loads.
inline std::atomic<nvinfer1::ILoggerFinder*>& logger_finder() {
  static std::atomic<nvinfer1::ILoggerFinder*> finder{nullptr};
  return finder;
}

inline void say(const std::string& words) noexcept {
  nvinfer1::ILoggerFinder* const finder = logger_finder().load();
  nvinfer1::ILogger* const logger = finder == nullptr ? nullptr : finder->findLogger();
  if (logger != nullptr) {
    logger->log(nvinfer1::ILogger::Severity::kERROR, words.c_str());
  } else {
    std::fprintf(stderr, "opforge: %s\n", words.c_str());
  }
}

// Runs the body of a function of a plugin: no exception leaves it.
template <class Result, class Body>
Result told(Result otherwise, Body body) noexcept {
  try {
    return body();
  } catch (const adapter::Failure& problem) {
    adapter::remember(problem);
    say(problem.text);
  } catch (const std::exception& problem) {
    say(problem.what());
  }
  return otherwise;
}

template <class Body>
int32_t done(Body body) noexcept {
  return told<int32_t>(-1, [&] {
    body();
    return 0;
  });
}

}  // namespace opforge::tensorrt_host
