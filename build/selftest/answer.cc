#include "build/selftest/answer.h"

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/parallel_reduce.h>
#include <boost/unordered/unordered_flat_map.hpp>

#include <functional>
#include <stdexcept>
#include <string>

namespace foundry::selftest {

long sum_of_squares(int count) {
  boost::unordered_flat_map<int, long> squares;
  for (int i = 0; i < count; ++i) squares[i] = static_cast<long>(i) * i;
  return tbb::parallel_reduce(
      tbb::blocked_range<int>(0, count), 0L,
      [&](const tbb::blocked_range<int>& range, long sum) {
        for (int i = range.begin(); i != range.end(); ++i) sum += squares.at(i);
        return sum;
      },
      std::plus<>());
}

void throw_in_parallel(int where) {
  tbb::parallel_for(0, 1000, [&](int i) {
    if (i == where) throw std::runtime_error("at " + std::to_string(i));
  });
}

}  // namespace foundry::selftest
