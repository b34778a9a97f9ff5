// A function that needs Boost and TBB, to test the macros with.
#pragma once

namespace foundry::selftest {

/// The sum of i*i for i below `count`.
long sum_of_squares(int count);

/// Throws std::runtime_error("at WHERE") from a worker; `where` is below 1000.
void throw_in_parallel(int where);

}  // namespace foundry::selftest
